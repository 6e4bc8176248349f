"""Prices of machines: a YAML file, machine -> price of a node an hour."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shorten

import yaml

from app.planning.measured_curve import NAME, CannotPlan, is_name

_EXPECTED = "a line 'machine: price an hour' for each machine, such as 'cpu: 0.10'"

#: The highest price: more is a mistake of units. Chosen.
_MOST_PRICE = 1e9

_PRICE = re.compile(r"[0-9]{1,20}(\.[0-9]{0,20})?(e-?[0-9]{1,2})?|\.[0-9]{1,20}")


def read_prices(file: Path) -> Mapping[str, float]:
    """The prices by machine, as they are written: YAML itself would read 010 as 8, 1:30 as 90, and 01 as no name.

    Raises CannotPlan: the file is no price list; OSError.
    """
    try:
        content = yaml.compose(file.read_text(encoding="utf-8"), yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise CannotPlan(f"{file} is no YAML; expected {_EXPECTED}") from None
    if not isinstance(content, yaml.MappingNode) or not content.value:
        raise CannotPlan(f"{file} is no price list; expected {_EXPECTED}")
    prices: dict[str, float] = {}
    for key, value in content.value:
        where = f"{file}, line {key.start_mark.line + 1}"
        machine = key.value
        if not isinstance(key, yaml.ScalarNode) or not is_name(machine):
            raise CannotPlan(f"{where}: the machine is {shorten(machine)}, but should be {NAME}; expected {_EXPECTED}")
        if machine in prices:
            raise CannotPlan(f"{where}: machine {machine!r} has a price before, but should have one")
        price = float(value.value) if isinstance(value, yaml.ScalarNode) and _PRICE.fullmatch(value.value) else 0.0
        if not 0 < price <= _MOST_PRICE:
            told = shorten(value.value) if isinstance(value, yaml.ScalarNode) else "not one number"
            raise CannotPlan(
                f"{where}: the price of {machine} is {told}, but should be a number above 0, at most "
                f"{_MOST_PRICE:g}, an hour"
            )
        prices[machine] = price
    return prices
