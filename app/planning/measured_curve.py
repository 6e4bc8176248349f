"""A cost curve that was measured: seconds of a model's calls by rows, on one kind of machine; kept as a JSON file."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from app.batching.costs.curve import CostCurve
from app.core.batch_sizes import MOST_BATCH_ROWS, MOST_BATCH_SIZES, MOST_BATCHES_IN_FLIGHT

#: The seconds for all calls of one size, and the least and the most calls, for each slot. Chosen.
_SIZE_S, _LEAST_CALLS, _MOST_CALLS = 0.3, 5, 200

#: The number of quantiles that describe how calls vary. Chosen.
_QUANTILES = 40

#: The most seconds of a call: more is a mistake of units. Chosen.
_MOST_CALL_S = 3600.0

#: The largest ratio of a size to the one before. Chosen: a server's sizes double.
_FARTHEST = 64

_VERSION = 1

#: The expectation of `is_name`, for error texts.
NAME = "a name of 1 to 200 printable characters"


class CannotPlan(ValueError):
    """A curve, a price list or a demand is wrong; the text says what, and what is expected."""


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """The measured costs of a model's calls on a machine.

    Attributes:
        machine: the name of the kind of machine, as in price lists.
        seconds: by rows of a call; more rows, more seconds, but for noise.
        slots: calls that run at the same time, in the measurement and in a server.
        spread: quantiles of the seconds of calls, as multiples of their size's mean.

    Raises:
        CannotPlan: sizes lie too far apart to know the costs of calls between them.
    """

    machine: str
    model: str
    signature: str
    seconds: Mapping[int, float]
    slots: int = 1
    spread: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        for size, larger in pairwise(sorted(self.seconds)):
            if larger > _FARTHEST * size:
                raise CannotPlan(
                    f"the curve of {self.model} on {self.machine} has sizes {size} and {larger} and none between, but "
                    f"each should be at most {_FARTHEST} times the one before"
                )

    @property
    def costs(self) -> CostCurve:
        return CostCurve.through(sorted(self.seconds), self.seconds)

    def write(self, file: Path) -> None:
        """Writes the curve to a file, as JSON. Raises OSError."""
        content = {"ferry_curve": _VERSION, **asdict(self)}
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> MeasuredCurve:
        """The curve in a file. Raises CannotPlan: the file is no such curve; OSError."""
        try:
            content = json.loads(file.read_bytes())
        except (ValueError, RecursionError):
            raise CannotPlan(f"{file} is no JSON; 'ferry plan --save-curve' writes such a file") from None
        if not isinstance(content, dict) or content.get("ferry_curve") != _VERSION:
            raise CannotPlan(f"{file} has no \"ferry_curve\": {_VERSION}; 'ferry plan --save-curve' writes such a file")
        field = partial(_field, file, content)
        return cls(
            field("machine", NAME, is_name),
            field("model", NAME, is_name),
            field("signature", NAME, is_name),
            {int(rows): seconds for rows, seconds in field("seconds", _SECONDS, _are_seconds).items()},
            field("slots", f"a whole number from 1 to {MOST_BATCHES_IN_FLIGHT}", _are_slots),
            tuple(field("spread", "a list of numbers above 0, at most 1000, whose mean is 1", _is_spread)),
        )


_SECONDS = f"rows (1 to {MOST_BATCH_ROWS}) and seconds (above 0, to {_MOST_CALL_S:g}) of 1 to {MOST_BATCH_SIZES} sizes"


def _field(file: Path, content: Mapping[str, Any], name: str, expected: str, fits: Callable[[Any], bool]) -> Any:
    if name not in content:
        raise CannotPlan(f"{file} has no {name!r}; expected {expected}")
    if not fits(content[name]):
        shown = json.dumps(content[name])
        raise CannotPlan(f"{file}: {name!r} is {shown[:60]}{'...' * (len(shown) > 60)}, but should be {expected}")
    return content[name]


def is_name(value: Any) -> bool:
    """Whether a value is a `NAME`."""
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _are_seconds(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and 0 < len(value) <= MOST_BATCH_SIZES
        and all(re.fullmatch("[1-9][0-9]{0,6}", rows) for rows in value)
        and all(0 < int(rows) <= MOST_BATCH_ROWS for rows in value)
        and all(_is_number(seconds) and 0 < seconds <= _MOST_CALL_S for seconds in value.values())
    )


def _are_slots(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_BATCHES_IN_FLIGHT


def _is_spread(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= 1000
        and all(_is_number(each) and 0 < each <= 1000 for each in value)
        and abs(sum(value) / len(value) - 1) < 0.01
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def measure(
    call: Callable[[int], object],
    sizes: Sequence[int],
    slots: int,
    progress: Callable[[int], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[int, float], Sequence[float]]:
    """The mean seconds of warm calls by size, with calls in all slots, and the spread of calls.

    Args:
        call: makes a call with that many rows; on several threads at the same time.
        progress: called with each size before it is measured.

    Raises whatever `call` raises.
    """
    seconds, ratios = dict[int, float](), list[float]()
    with ThreadPoolExecutor(slots, "measure") as threads:
        for rows in sizes:
            progress(rows)
            of_slots = threads.map(lambda _, rows=rows: _timed(call, rows, clock), range(slots))
            taken = [each for of_slot in of_slots for each in of_slot]
            seconds[rows] = sum(taken) / len(taken)
            ratios += [each / seconds[rows] for each in taken]
    spread = np.quantile(ratios, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    return seconds, tuple(np.round(spread / spread.mean(), 4).tolist())


def _timed(call: Callable[[int], object], rows: int, clock: Callable[[], float]) -> list[float]:
    call(rows)  # the first call of a shape is slow
    taken = list[float]()
    while len(taken) < _LEAST_CALLS or (len(taken) < _MOST_CALLS and sum(taken) < _SIZE_S):
        begin_s = clock()
        call(rows)
        taken.append(clock() - begin_s)
    return taken
