from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from app.planning.measured_curve import CannotPlan, MeasuredCurve, measure
from tests.planning.curves import curve_of


def test_a_curve_is_read_as_it_was_written(tmp_path: Path) -> None:
    curve = curve_of(0.008, 0.0008, slots=2, spread=(0.9, 1.1))
    curve.write(tmp_path / "curve.json")
    assert MeasuredCurve.read(tmp_path / "curve.json") == curve


GOOD = {"ferry_curve": 1, **asdict(curve_of(0.008, 0.0008))}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ferry_curve": 2}, 'has no "ferry_curve": 1'),
        ({"machine": ""}, "'machine' is \"\", but should be a name"),
        ({"model": 3}, "'model' is 3, but should be a name"),
        ({"seconds": {}}, "'seconds' is {}, but should be rows"),
        ({"seconds": {"0": 0.1}}, "'seconds' is"),
        ({"seconds": {"x": 0.1}}, "'seconds' is"),
        ({"seconds": {"1": -1}}, "'seconds' is"),
        ({"seconds": {"1": True}}, "'seconds' is"),
        ({"seconds": {"9" * 5000: 1.0}}, "'seconds' is"),
        ({"seconds": {"01": 0.1}}, "'seconds' is"),
        ({"seconds": {"1": 10**400}}, "'seconds' is"),
        ({"spread": [10**400]}, "'spread' is"),
        ({"slots": 10**400}, "'slots' is"),
        ({"slots": 0}, "'slots' is 0, but should be a whole number from 1"),
        ({"slots": 1.5}, "'slots' is 1.5"),
        ({"spread": []}, "'spread' is"),
        ({"spread": [3.0]}, "'spread' is .*, but should be a list of numbers above 0, at most 1000, whose mean is 1"),
    ],
)
def test_a_wrong_curve_names_the_field_and_what_is_expected(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    file = tmp_path / "curve.json"
    file.write_text(json.dumps({**GOOD, **changes}))
    with pytest.raises(CannotPlan, match=text) as raised:
        MeasuredCurve.read(file)
    assert str(file) in str(raised.value)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"seconds": NaN}', b"[" * 100_000])
def test_what_is_no_curve_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "curve.json").write_bytes(content)
    with pytest.raises(CannotPlan, match="'ferry plan --save-curve' writes such a file"):
        MeasuredCurve.read(tmp_path / "curve.json")


def test_sizes_that_lie_far_apart_are_told() -> None:
    with pytest.raises(CannotPlan, match="has sizes 1 and 1024 and none between"):
        MeasuredCurve("cpu", "m", "s", {1: 0.001, 1024: 0.01})


def test_a_field_that_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "curve.json").write_text(json.dumps({name: value for name, value in GOOD.items() if name != "slots"}))
    with pytest.raises(CannotPlan, match="has no 'slots'; expected a whole number"):
        MeasuredCurve.read(tmp_path / "curve.json")


def test_calls_are_measured_as_many_at_a_time_as_there_are_slots() -> None:
    """Each call waits for another one: with one at a time none would end."""
    together, now = threading.Barrier(2), threading.local()

    def call(rows: int) -> None:
        together.wait(60)
        now.s = getattr(now, "s", 0.0) + 0.001 * rows * (1.5 if getattr(now, "odd", False) else 0.5)
        now.odd = not getattr(now, "odd", False)

    seconds, spread = measure(call, (1, 64), 2, clock=lambda: getattr(now, "s", 0.0))
    assert seconds[64] == pytest.approx(0.064, rel=0.2)
    assert seconds[1] == pytest.approx(0.001, rel=0.01)
    assert min(spread) == pytest.approx(0.5, rel=0.2)
    assert max(spread) == pytest.approx(1.5, rel=0.2)
    assert sum(spread) / len(spread) == pytest.approx(1.0, abs=0.001)


def test_a_call_that_fails_is_told() -> None:
    def call(rows: int) -> None:
        raise OSError("no device")

    with pytest.raises(OSError, match="no device"):
        measure(call, (1,), 2)
