from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bench import start_up
from bench.start_up import IMPORT, table


@pytest.fixture(autouse=True)
def _signals_restored() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_multiples_are_of_the_import_of_the_same_round() -> None:
    lines = table({IMPORT: {1: 2.0, 2: 4.0}, "first start, ready": {1: 3.0, 2: 4.0}}).splitlines()
    assert lines[2].split("ready")[1].split() == ["3.50", "(3.00-4.00)", "1.25", "(1.00-1.50)"]


def test_a_run_that_is_stopped_tells_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = iter([{IMPORT: 9.0}, {IMPORT: 4.0}])

    def measured(trees: Mapping[str, Path], models: Path, many: Path | None) -> dict[str, float]:
        round_s = next(rounds, None)
        if round_s is None:
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError("It goes on")
        return round_s

    monkeypatch.setattr(start_up, "ensure_models", lambda: None)
    monkeypatch.setattr(start_up, "_round", measured)
    monkeypatch.setattr(sys, "argv", ["start_up", "--rounds", "3", "--small", "0"])
    with pytest.raises(SystemExit, match="The measurement was stopped"):
        start_up.main()
    told = capsys.readouterr()
    assert "4.00 (4.00-4.00)" in told.out
    assert told.err.splitlines() == [f"Round 0 of 3: {IMPORT} 9.00 s", f"Round 1 of 3: {IMPORT} 4.00 s"]
