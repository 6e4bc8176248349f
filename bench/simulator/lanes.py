"""Who may share a call, and what calls cost: the part of a run that bounds of goodput are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.simulator.simulation import Arrival, CallCosts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SimulatedLane:
    """Requests of one length.

    at_s: [requests], their arrivals in ascending order.
    call_s: [most rows in a call], seconds of the cheapest call that has room for 1, 2, ... rows; never descending.
    """

    at_s: Floats
    call_s: Floats

    def __len__(self) -> int:
        return len(self.at_s)


def lanes_of(arrivals: Sequence[Arrival], costs: CallCosts, sizes: Sequence[int]) -> list[SimulatedLane]:
    """One for each length; calls are padded to one of `sizes`."""
    lengths = sorted({each.length for each in arrivals})
    return [
        SimulatedLane(
            np.array(sorted(each.at_s for each in arrivals if each.length == length)), _call_s(length, costs, sizes)
        )
        for length in lengths
    ]


def _call_s(length: float, costs: CallCosts, sizes: Sequence[int]) -> Floats:
    of_size = {size: costs.call_s(size, length) for size in sizes}
    return np.array([min(of_size[size] for size in sizes if size >= rows) for rows in range(1, max(sizes) + 1)])
