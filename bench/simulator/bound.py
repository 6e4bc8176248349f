"""An upper bound of goodput for any batching, computed with knowledge of all arrivals.

| case | bound | proof |
|---|---|---|
| one device, equal lengths | the optimum itself | bench/simulator/optimum.py |
| one device, several lengths, few requests | the optimum itself | the same |
| any other | the least of those below | |
| ... prices for device time | a Lagrangian relaxation | bench/simulator/device_prices.py |
| ... a share of the cheapest call for each row | a combinatorial relaxation | bench/simulator/row_shares.py |
| ... each length with a device of its own, if there is one device | the optimum of each | bench/simulator/optimum.py |

They hold for whatever order and whatever batches, not only first come first served. What they need: a call takes
`call_s` at least, all its rows are answered when it ends, and all requests have the same time until their deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from bench.simulator.device_prices import most_by_prices
from bench.simulator.lanes import lanes_of
from bench.simulator.optimum import of_one_lane, of_several_lanes, places
from bench.simulator.row_shares import most_by_row_shares
from bench.simulator.simulation import Arrival, CallCosts

#: An answer may be as much later, so that no rounding makes the bound too low.
LATE_S = 1e-9

#: Up to which the optimum of several lanes is computed: some 2 s.
MOST_PLACES = 20_000


def most_in_time(
    arrivals: Sequence[Arrival], costs: CallCosts, deadline_s: float, sizes: Sequence[int], devices: int = 1
) -> int:
    """How many requests could be answered in time by calls of these `sizes`; `arrivals` in order of time.

    With several lengths it takes some seconds for 5000 arrivals, else about one.
    """
    lanes, deadline_s = lanes_of(arrivals, costs, sizes), deadline_s + LATE_S
    if devices == 1 and len(lanes) == 1:
        return of_one_lane(lanes[0], deadline_s)
    if devices == 1 and places(lanes) <= MOST_PLACES:
        return of_several_lanes(lanes, deadline_s)

    bounds = [
        most_by_row_shares(arrivals, costs, deadline_s, sizes, devices),
        floor(most_by_prices(lanes, deadline_s, devices) + 1e-6),
    ]
    if devices == 1:
        bounds.append(sum(of_one_lane(lane, deadline_s) for lane in lanes))
    return min(bounds)
