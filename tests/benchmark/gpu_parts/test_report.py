from __future__ import annotations

import json
from math import nan
from pathlib import Path

import pytest

from bench.gpu_parts.report import Report


def test_everything_is_written_and_printed_as_soon_as_it_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    report = Report("copies", file)
    report.begin("twice as fast", "GPU", {"device_name": "one"})
    report.ratio("locked / pageable", [4.0, 9.0, 4.0], [2.0, 3.0, 4.0])
    report.bound("answers", 2e-3, 1e-2)
    report.not_measured("replicas", "there is one GPU")
    found = json.loads(file.read_text())
    assert (found["predicted"], found["on"], found["done"]) == ("twice as fast", "GPU", False)
    (figure,) = found["figures"]
    assert (figure["values"], figure["median"], figure["least"], figure["most"]) == ([2.0, 3.0, 1.0], 2.0, 1.0, 3.0)
    assert found["bounds"] == [{"what": "answers", "value": 2e-3, "bound": 1e-2, "within": True}]
    assert found["not_measured"] == [{"what": "replicas", "why": "there is one GPU"}]
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "[GPU] locked / pageable: 2 (1-3) x, 3 rounds",
        "[GPU] answers: 2.0e-03, within the bound 1.0e-02",
        "NOT MEASURED: replicas, because there is one GPU",
    ]
    report.done()
    assert json.loads(file.read_text())["done"]


@pytest.mark.parametrize("value", [0.02, nan])
def test_a_difference_outside_of_its_bound_is_told_as_such(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Report("precision", tmp_path / "found.json", "CPU").bound("answers", value, 0.01)
    assert "OUTSIDE OF the bound 1.0e-02" in capsys.readouterr().out


def test_ratios_of_unequal_rounds_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        Report("copies", tmp_path / "found.json").ratio("one / other", [1.0], [1.0, 2.0])
