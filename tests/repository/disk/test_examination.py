"""Whether a second read is slow. What a read waits for is a fake; that it is counted is tried with a pipe."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from app.repository.disk import examination
from app.repository.disk.examination import Examined, examine, nothing_missing, seconds_waiting, slow_again
from tests.repository.fakes import add

SLOW = Examined(slow="a second read of saved_model.pb took 100 ms")


class Reads:
    """Makes the second reads, and says how long each waited; 0 s when there is nothing more to say."""

    def __init__(self, *waits_s: float) -> None:
        self.waits_s = list(waits_s)
        self.count = 0

    def __call__(self, read: Callable[[], object]) -> float:
        read()
        self.count += 1
        return self.waits_s.pop(0) if self.waits_s else 0.0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Reads]:
    def play(*waits_s: float) -> Reads:
        made = Reads(*waits_s)
        monkeypatch.setattr(examination, "seconds_waiting", made)
        return made

    return play


def test_what_is_in_the_page_cache_is_quick(tmp_path: Path) -> None:
    assert examine(add(tmp_path, "m", 1), nothing_missing) == Examined()


def test_a_slow_second_read_ends_the_reading(tmp_path: Path, reads: Callable[..., Reads]) -> None:
    version = add(tmp_path, "m", 1)
    (version / "variables").mkdir()
    os.mkfifo(version / "variables" / "never_reached")
    second = reads(0.1)
    assert examine(version, nothing_missing) == SLOW
    assert second.count == 1


def test_files_that_others_pushed_out_of_the_cache_are_found(tmp_path: Path, reads: Callable[..., Reads]) -> None:
    version = add(tmp_path, "m", 1)
    (version / "variables").write_bytes(b"large")
    reads(0.0, 0.0, 0.1)
    assert examine(version, nothing_missing) == SLOW, "each right after it was read, then all again"


def test_second_reads_take_a_small_share_of_the_bytes(tmp_path: Path, reads: Callable[..., Reads]) -> None:
    sizes = {"empty": 0, "small": 1, "large": 40 << 20}
    for name, size in sizes.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    second = reads()
    assert slow_again(tmp_path, [(tmp_path / name, size) for name, size in sizes.items()]) == ""
    assert second.count == 1 + 1 + 3, "some storage does not know the size of a file"


@pytest.mark.parametrize(("wait_s", "found"), [(0.002, False), (0.004, True)])
def test_six_reads_have_to_take_less_than_20_ms(
    tmp_path: Path, reads: Callable[..., Reads], wait_s: float, found: bool
) -> None:
    reads(wait_s)
    assert bool(slow_again(tmp_path, [(add(tmp_path, "m", 1) / "saved_model.pb", 4)])) == found


def test_only_a_read_that_waits_counts() -> None:
    """Not one that is long because the machine is busy."""
    silent, writer = os.pipe()
    assert seconds_waiting(lambda: select.select([silent], [], [], 0.01)) > 0
    assert seconds_waiting(lambda: None) == 0
    os.close(silent)
    os.close(writer)


def test_a_graph_beside_a_pipeline_is_a_fault(tmp_path: Path) -> None:
    version = add(tmp_path, "m", 1)
    (version / "pipeline.yaml").write_text("steps: {}")
    assert examine(version, nothing_missing).missing == (
        "it holds both saved_model.pb and pipeline.yaml, and may hold one of them"
    )
    (version / "saved_model.pb").unlink()
    assert examine(version, nothing_missing) == Examined()
