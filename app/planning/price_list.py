"""Prices of machines: a YAML file, machine -> price of a node an hour."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path

import yaml

from app.planning.measured_curve import CannotPlan

_EXPECTED = "a line 'machine: price an hour' for each machine, such as 'cpu: 0.10'"


def read_prices(file: Path) -> Mapping[str, float]:
    """Raises CannotPlan: the file is no price list; OSError."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise CannotPlan(f"{file} is no YAML; expected {_EXPECTED}") from None
    if not isinstance(content, dict) or not content:
        raise CannotPlan(f"{file} is no price list; expected {_EXPECTED}")
    for machine, price in content.items():
        if not isinstance(machine, str):
            raise CannotPlan(f"{file} has the machine {machine!r}, but should have a name; expected {_EXPECTED}")
        if isinstance(price, bool) or not isinstance(price, int | float) or not (isfinite(price) and price > 0):
            raise CannotPlan(f"{file}: the price of {machine} is {price!r}, but should be a number above 0, an hour")
    return {machine: float(price) for machine, price in content.items()}
