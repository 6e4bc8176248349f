from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from bench.gpu_parts.monitor import FIELDS, Monitor, summary
from tests.support.waiting import HANG_S


def test_the_median_and_the_most_of_each_field_are_told_and_what_is_no_number_is_left_out() -> None:
    lines = ["10, 5, 2000, 100.5", "90, 5, 2000, [N/A]", "80, 6, 3000, 300.5", "[Unknown Error]", ""]
    assert summary(lines) == {
        "GPU in use, %": (80.0, 90.0),
        "its memory's bus in use, %": (5.0, 6.0),
        "memory, MiB": (2000.0, 3000.0),
        "power, W": (200.5, 300.5),
    }
    assert summary([]) == {}


def test_a_program_is_asked_until_the_block_ends(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    script = f"open({str(asked)!r}, 'a').write('x'); print(', '.join(['7'] * {len(FIELDS)}))"
    monitor = Monitor([sys.executable, "-c", script], pause_s=0.001)
    give_up_s = time.monotonic() + HANG_S
    with monitor.watching() as watched:
        while not (asked.exists() and len(asked.read_text()) >= 2) and time.monotonic() < give_up_s:
            pass
    assert watched == dict.fromkeys(FIELDS.values(), (7.0, 7.0))
    assert monitor.missing == ""


@pytest.mark.parametrize("program", ["/nowhere/nvidia-smi", "true"])
def test_a_program_that_says_nothing_is_told_as_missing(program: str) -> None:
    monitor = Monitor([program], pause_s=0.001)
    with monitor.watching() as watched:
        pass
    assert watched == {}
    assert monitor.missing == f"{program} says nothing that could be read"


def test_a_machine_without_nvidia_smi_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monitor = Monitor()
    with monitor.watching() as watched:
        pass
    assert (watched, monitor.missing) == ({}, "there is no nvidia-smi on this machine")
