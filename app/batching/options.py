"""What users may say about the batches of a model. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from reprlib import repr as shorten
from typing import Any

from app.errors import InvalidRequest

#: Beyond these, times that are divided by weights would be none any more.
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000.0
_WEIGHT = f"a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, or 0 for none"


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """How the batches of a model are formed. They may be changed while it serves, from the next batch on.

    Attributes:
        max_batch_size: most rows in one call; 0 for as many as the model was warmed up with.
        max_batch_delay_ms: how long an idle device waits for company.
        max_pause_ms: see the setting of that name.
        target_p99_ms: batches are kept so small that a call and the wait for the one before take no longer; 0 for none.
        weight: the model's share of the devices' time beside other models'; 0 for none, which counts as 1 beside those.
        policy: a name in policy.py.

    Raises:
        InvalidRequest: a value is wrong; the text names it and says what is expected.
    """

    max_batch_size: int = 0
    max_batch_delay_ms: float = 0.0
    max_pause_ms: float = 0.0
    target_p99_ms: float = 0.0
    weight: float = 0.0
    policy: str = "self_tuning"

    def __post_init__(self) -> None:
        _check_rows("max_batch_size", self.max_batch_size)
        for name in ("max_batch_delay_ms", "max_pause_ms", "target_p99_ms"):
            _check_number(name, getattr(self, name), "a number of milliseconds that is not negative")
        _check_number("weight", self.weight, _WEIGHT)
        if self.weight and not LEAST_WEIGHT <= self.weight <= MOST_WEIGHT:
            raise InvalidRequest(f"weight is {shorten(self.weight)}, but should be {_WEIGHT}")
        if not isinstance(self.policy, str):
            raise InvalidRequest(f"policy is {shorten(self.policy)}, but should be a name such as 'self_tuning'")

    def changed(self, changes: Mapping[str, Any]) -> BatchingOptions:
        """These options with some of them changed, by name. Raises InvalidRequest."""
        names = [each.name for each in fields(self)]
        for name in changes:
            if name not in names:
                raise InvalidRequest(f"{name[:64]} is no batching option; there are {', '.join(names)}")
        return replace(self, **changes)

    def check_largest(self, largest: int) -> None:
        """Raises InvalidRequest where batches would be larger than the model's largest."""
        if self.max_batch_size > largest:
            raise InvalidRequest(
                f"max_batch_size is {self.max_batch_size}, but should be at most {largest}, the largest batch that the "
                "model was warmed up with"
            )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _check_rows(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidRequest(
            f"{name} is {shorten(value)}, but should be a whole number of rows, or 0 for the model's largest"
        )


def _check_number(name: str, value: object, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise InvalidRequest(f"{name} is {shorten(value)}, but should be {expected}")


DEFAULTS = BatchingOptions()
