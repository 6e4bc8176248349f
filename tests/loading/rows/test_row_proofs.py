"""What calls found of rows outlives the version that found it, and a disproof reaches all at once."""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import pytest

from app.loading.rows import row_proofs
from app.loading.rows.row_proofs import Disproof, KeptProof, RowProofs
from tests.support.waiting import HANG_S, wait_until

PROOF = KeptProof({"y": ("probe", 64)}, "it loops")
DISPROOF = Disproof("a row changed another one")


class Watcher:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def disproved(self, name: str, reason: str) -> None:
        self.told.append((name, reason))


def kept(folder: Path, name: str = "g-w") -> Callable[[], bool]:
    return (folder / "rows" / f"{name}.json").exists


def test_a_proof_is_there_for_the_next_version_and_after_a_restart(tmp_path: Path) -> None:
    proofs = RowProofs(tmp_path)
    assert proofs.known("g", "w") is None
    proofs.keep("g", "w", PROOF)
    assert proofs.known("g", "w") == PROOF
    wait_until(kept(tmp_path))
    assert RowProofs(tmp_path).known("g", "w") == PROOF
    assert RowProofs(tmp_path).known("another", "w") is None


def test_a_disproof_stays_whatever_is_proven_later(tmp_path: Path) -> None:
    proofs = RowProofs(tmp_path)
    proofs.disprove("g", DISPROOF.reason)
    proofs.keep("g", "w", PROOF)
    assert proofs.known("g", "w") == DISPROOF
    wait_until(kept(tmp_path, "g"))
    late = RowProofs(tmp_path)
    assert late.known("g", "w") == DISPROOF


def test_a_process_that_knew_the_proof_does_not_write_over_another_ones_disproof(tmp_path: Path) -> None:
    other = RowProofs(tmp_path)
    assert other.known("g", "w") is None
    RowProofs(tmp_path).disprove("g", DISPROOF.reason)
    wait_until(kept(tmp_path, "g"))
    assert other.known("g", "w") == DISPROOF  # of the next version
    other.keep("g", "w", PROOF)
    wait_until(kept(tmp_path))
    assert RowProofs(tmp_path).known("g", "w") == DISPROOF


def test_a_proof_holds_for_the_weights_with_which_it_was_found_and_a_disproof_for_all(tmp_path: Path) -> None:
    proofs = RowProofs(tmp_path)
    proofs.keep("g", "w", PROOF)
    assert proofs.known("g", "other") is None
    proofs.disprove("g", DISPROOF.reason)
    assert proofs.known("g", "other") == DISPROOF


def test_a_disproof_is_told_to_all_that_watch() -> None:
    proofs, first, second = RowProofs(None), Watcher(), Watcher()
    for each in (first, second):
        proofs.watch(each)
    proofs.disprove("g", "why")
    assert (first.told, second.told) == ([("g", "why")], [("g", "why")])


def test_a_disk_that_hangs_keeps_nobody_from_disproving(tmp_path: Path) -> None:
    """The event loop disproves, while a load waits for the disk."""
    proofs, watcher = RowProofs(tmp_path), Watcher()
    proofs.watch(watcher)
    (tmp_path / "rows").mkdir()
    os.mkfifo(tmp_path / "rows" / "g.json")
    hangs = os.open(tmp_path / "rows" / "g.json", os.O_RDWR)  # who opens it to read waits until this is closed
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(proofs.known, "g", "w")
        try:
            wait_until(lambda: any(frame.f_code is row_proofs._read.__code__ for frame in frames()))
            pool.submit(proofs.disprove, "g", DISPROOF.reason).result(HANG_S)
            assert watcher.told == [("g", DISPROOF.reason)]
            assert not asked.done()
        finally:
            os.close(hangs)
        assert asked.result(HANG_S) == DISPROOF


def frames() -> Iterator[FrameType]:
    """What all threads are in."""
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            yield frame
            frame = frame.f_back


def test_a_watcher_that_ended_is_let_go() -> None:
    proofs, watcher = RowProofs(None), Watcher()
    proofs.watch(watcher)
    del watcher
    gc.collect()
    assert not proofs._watchers


def test_signatures_without_a_graph_are_not_remembered(tmp_path: Path) -> None:
    proofs = RowProofs(tmp_path)
    proofs.keep("", "w", PROOF)
    proofs.disprove("", "why")
    assert proofs.known("", "w") is None
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": 0, "outputs": {}, "finite_only": ""}',
        '{"format": 2, "outputs": {"y": ["graph", 4]}, "finite_only": ""}',
        '{"format": 2, "outputs": {"y": ["probe", 1]}, "finite_only": ""}',
        '{"format": 2, "outputs": {"y": "probe"}, "finite_only": ""}',
    ],
)
def test_a_file_that_is_no_proof_proves_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "g.json").write_text(content)
    assert RowProofs(tmp_path).known("g", "w") is None


def test_the_oldest_files_go_and_disproofs_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_proofs, "_MOST_GRAPHS", 4)
    (tmp_path / "rows").mkdir()
    for age, name in enumerate(["disproved", "0-w", "1-w", "2-w"]):
        file = tmp_path / "rows" / f"{name}.json"
        file.write_text(json.dumps({}))
        os.utime(file, (age, age))
    RowProofs(tmp_path).keep("g", "w", PROOF)
    wait_until(lambda: not kept(tmp_path, "0-w")())
    assert sorted(file.stem for file in (tmp_path / "rows").iterdir()) == ["1-w", "2-w", "disproved", "g-w"]


def test_a_folder_that_cannot_be_written_to_keeps_nothing_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("a file")
    proofs = RowProofs(tmp_path)
    proofs._known["g-w"] = PROOF
    proofs._write("g-w")
    assert proofs.known("g", "w") == PROOF
