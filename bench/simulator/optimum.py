"""The most requests that any batching answers in time on one device, exactly, with knowledge of all arrivals.

All requests have the same time until their deadline. Two exchanges show that it is enough to look at schedules which
compute the requests of a lane in order of arrival, each call a run of neighbours:

1. If an earlier call of a lane has request j and a later one has i, which arrived before j, let them change places. i
   was there when the earlier call started, since j was; j is in time in the later call, since i was.
2. If a call leaves out a request between its oldest and its newest, and no later call has that one (by 1), it takes it
   in place of its oldest. It starts and ends as before, and its oldest request is now due later.

So a schedule is: drop the next request of a lane, or call its next n. Of two ways to come to the same place with the
same number dropped, the one after which the device is free earlier is as good as the other whatever follows. Dynamic
programming over (how far each lane is, how many were dropped) -> (when the device is free) finds the optimum. It goes
back to Baptiste, "Batching identical jobs" (2000), where every call takes the same time; calls that take longer with
more rows change nothing in the two exchanges.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import inf, prod

import numpy as np

from bench.simulator.lanes import Floats, SimulatedLane


def of_one_lane(lane: SimulatedLane, deadline_s: float) -> int:
    """Requests in time; some 0.2 ms for each request at the load that the device can bear, and linear beyond.

    free_s[j % rows][d] says when the device can be free if d of the first j requests were dropped. Both d and j make it
    monotonic, so only a window of d matters: with fewer dropped nothing is feasible (infinity), and with more the
    device is free before the next request arrives (minus infinity: no later call starts sooner for it).
    """
    rows, total = len(lane.call_s) + 1, len(lane)
    free_s = np.full((rows, total + 2), inf)
    free_s[0] = -inf
    fewest, idle = 0, 0

    for count in range(1, total + 1):
        newest_s = lane.at_s[count - 1]
        until = idle + 2
        best = np.full(until - fewest, inf)

        # 1. The newest is dropped.
        best[1:] = free_s[(count - 1) % rows, fewest : until - 1]

        # 2. A call has the last 1, 2, ... `most`.
        latest_s = _latest_starts(lane, count, deadline_s)
        most = int((latest_s >= newest_s).sum())
        if most:
            before = free_s[(count - 1 - np.arange(most)) % rows, fewest:until]
            start_s = np.maximum(before, newest_s)
            end_s = np.where(start_s <= latest_s[:most, None], start_s + lane.call_s[:most, None], inf)
            np.minimum(best, end_s.min(axis=0), out=best)

        # 3. The window of the next.
        feasible = int((best < inf).argmax())  # the last entry always is: all of a busy stretch can be dropped
        idle = fewest + int((best <= newest_s).argmax())
        row = free_s[count % rows]
        row[:fewest], row[fewest:until], row[idle:] = inf, best, -inf
        fewest += feasible
    return total - fewest


def of_several_lanes(lanes: Sequence[SimulatedLane], deadline_s: float) -> int:
    """Requests in time; for small cases, see `places`."""
    total = sum(len(lane) for lane in lanes)
    shape = tuple(len(lane) + 1 for lane in lanes)
    free_s = np.full((*shape, total + 1), inf)  # by how far each lane is, and how many were dropped
    for place in itertools.product(*map(range, shape)):
        best = free_s[place]
        if not any(place):
            best[0] = -inf
        for number, lane in enumerate(lanes):
            count = place[number]
            if not count:
                continue

            # 1. The newest of this lane is dropped.
            np.minimum(best[1:], free_s[_back(place, number, 1)][:-1], out=best[1:])

            # 2. A call has the last 1, 2, ... of it.
            newest_s = lane.at_s[count - 1]
            for rows, latest_s in enumerate(_latest_starts(lane, count, deadline_s), start=1):
                if latest_s < newest_s:
                    break
                start_s = np.maximum(free_s[_back(place, number, rows)], newest_s)
                end_s = np.where(start_s <= latest_s, start_s + lane.call_s[rows - 1], inf)
                np.minimum(best, end_s, out=best)
    return total - int((free_s[tuple(len(lane) for lane in lanes)] < inf).argmax())


def places(lanes: Sequence[SimulatedLane]) -> int:
    """How many states `of_several_lanes` looks at, each some 0.1 ms."""
    return prod(len(lane) + 1 for lane in lanes)


def _latest_starts(lane: SimulatedLane, count: int, deadline_s: float) -> Floats:
    """When calls with the last 1, 2, ... of `count` requests have to start; never ascending."""
    most = min(count, len(lane.call_s))
    return lane.at_s[count - most : count][::-1] + deadline_s - lane.call_s[:most]


def _back(place: tuple[int, ...], number: int, rows: int) -> tuple[int, ...]:
    return (*place[:number], place[number] - rows, *place[number + 1 :])
