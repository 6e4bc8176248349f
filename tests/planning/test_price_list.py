from __future__ import annotations

from pathlib import Path

import pytest

from app.planning.measured_curve import CannotPlan
from app.planning.price_list import read_prices


def test_prices_are_by_machine(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("cpu: 0.10  # an hour\ngpu: 2\n")
    assert read_prices(tmp_path / "prices.yaml") == {"cpu": 0.1, "gpu": 2.0}


def test_names_and_prices_are_what_is_written(tmp_path: Path) -> None:
    """Not what YAML makes of them: 8, true, and 1."""
    (tmp_path / "prices.yaml").write_text("01: 010\nno: '2.5'\na[b: 1e-2\n")
    assert read_prices(tmp_path / "prices.yaml") == {"01": 10.0, "no": 2.5, "a[b": 0.01}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is no price list"),
        ("- cpu", "is no price list"),
        ("cpu: [", "is no YAML"),
        ("cpu: cheap", "the price of cpu is 'cheap', but should be a number above 0"),
        ("cpu: -1", "the price of cpu is '-1'"),
        ("cpu: .inf", "the price of cpu is '.inf'"),
        ("cpu: true", "the price of cpu is 'true'"),
        ("cpu: 0", "the price of cpu is '0'"),
        ("cpu: 1:30", "the price of cpu is '1:30'"),
        ("cpu: 2026-13-41", "the price of cpu is '2026-13-41'"),
        ("cpu: 0b_", "the price of cpu is '0b_'"),
        ("cpu: [1]", "the price of cpu is not one number"),
        ("gpu: 1\ncpu: 1000000001", "line 2: the price of cpu is '1000000001', but should be .* at most 1e.09"),
        ("cpu: " + "9" * 400, "the price of cpu is '9999"),
        ("cpu: " + "9" * 5000, "the price of cpu is '9999"),
        ("cpu: 1e308", "the price of cpu is '1e308'"),
        ("cpu: 1\ncpu: 2", "line 2: machine 'cpu' has a price before"),
        ("[cpu]: 1", "the machine is .* but should be a name"),
        ('"": 1', "the machine is '', but should be a name"),
        ('"a\\nb": 1', "the machine is .* but should be a name of 1 to 200 printable characters"),
        ("x" * 201 + ": 1", "the machine is 'xxx"),
    ],
)
def test_a_wrong_price_list_is_told(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(CannotPlan, match=expected) as raised:
        read_prices(tmp_path / "prices.yaml")
    assert len(str(raised.value)) < 500
