from __future__ import annotations

from pathlib import Path

import pytest

from app.planning.measured_curve import CannotPlan
from app.planning.price_list import read_prices


def test_prices_are_by_machine(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("cpu: 0.10  # an hour\ngpu: 2\n")
    assert read_prices(tmp_path / "prices.yaml") == {"cpu": 0.1, "gpu": 2.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is no price list"),
        ("- cpu", "is no price list"),
        ("cpu: [", "is no YAML"),
        ("cpu: cheap", "the price of cpu is 'cheap', but should be a number above 0"),
        ("cpu: -1", "the price of cpu is -1"),
        ("cpu: .inf", "the price of cpu is inf"),
        ("cpu: true", "the price of cpu is True"),
        ("3: 1", "has the machine 3"),
    ],
)
def test_a_wrong_price_list_is_told(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(CannotPlan, match=expected):
        read_prices(tmp_path / "prices.yaml")
