"""An upper bound of the requests in time of several lanes, or on several devices, by prices for device time.

A Lagrangian relaxation (Held and Karp, 1970; for machines and slots of time Sousa and Wolsey, 1992): a call may start
at any time, whatever else runs, but pays for the device time that it takes, by a price for each slot of time. All calls
of a schedule in which at most `devices` calls run at once pay no more than all device time is worth. So

    requests in time  <=  worth of all device time  +  for each lane: (requests - what their calls pay), the most of it

holds for whatever prices, which makes the bound safe: how prices are found decides only how tight it is. They are
changed in the direction of the surplus: dearer where chosen calls need more than there is (subgradients with Polyak's
step). At the best prices the bound is that of the linear program with an unknown for each call and start.

The most of a lane is a dynamic program over runs of neighbours, in order of arrival. Why runs are enough is explained
in bench/simulator/optimum.py for one device. On several, a long call can start before a short one and end after it, so
the exchange could make a request late. There the bound allows a call that would be in time if it were as short as a
call of one row; then calls of a lane are in order of arrival if they are in order of their starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.simulator.lanes import Floats, Ints, SimulatedLane

#: Chosen: slots of 2 ms lower the bound by less than 0.1 %.
SLOT_S = 0.005

#: Rounds of prices; a hundred more lower the bound by less than 0.1 % if the load is steady.
ROUNDS = 100

#: The first step aims at this share below the least bound so far; a smaller one when some rounds gained nothing.
_AIM, _PATIENCE, _SMALLER, _LEAST_STEP = 0.15, 8, 0.6, 0.01

#: At first the prices of as many neighbours change together, then of half as many, and so on: bursts are priced sooner.
_TOGETHER = 32


def most_by_prices(lanes: Sequence[SimulatedLane], deadline_s: float, devices: int = 1, rounds: int = ROUNDS) -> float:
    """No schedule has more requests in time."""
    until_s = max(float(lane.at_s[-1]) for lane in lanes) + deadline_s
    grid_s = np.arange(int(until_s / SLOT_S) + 2) * SLOT_S
    priced = [_PricedLane(lane, deadline_s, grid_s, one_device=devices == 1) for lane in lanes]

    best, best_prices = _best_constant_price(lanes, priced, grid_s, devices)
    prices, step, waited, direction = best_prices, 1.0, 0, np.zeros(len(grid_s) - 1)
    for number in range(rounds):
        bound, surplus = _bound(priced, prices, grid_s, devices)
        waited = 0 if bound < best * (1 - 1e-4) else waited + 1
        if bound < best:
            best, best_prices = bound, prices
        if waited == _PATIENCE:
            step, waited, prices = _SMALLER * step, 0, best_prices
        direction = (direction + _together(surplus, _TOGETHER >> (8 * number // rounds))) / 2
        length = float(direction @ direction)
        if step < _LEAST_STEP or length == 0:
            break
        prices = np.maximum(0.0, prices - step * (bound - best * (1 - _AIM * step)) / length * direction)
    return best


def _best_constant_price(
    lanes: Sequence[SimulatedLane], priced: Sequence[_PricedLane], grid_s: Floats, devices: int
) -> tuple[float, Floats]:
    """The bound, and the price of each slot. No call gains anything at the price of the cheapest row or above."""
    priciest = max(float((np.arange(1, len(lane.call_s) + 1) / lane.call_s).max()) for lane in lanes)
    per_s = [0.0, *(priciest / 2**halvings for halvings in range(8))]
    tried = [np.full(len(grid_s) - 1, each * SLOT_S) for each in per_s]
    return min(((_bound(priced, each, grid_s, devices).requests, each) for each in tried), key=lambda pair: pair[0])


def _together(surplus: Floats, many: int) -> Floats:
    """Each slot has the mean of its group of so `many` neighbours."""
    if many <= 1:
        return surplus
    begins = np.arange(0, len(surplus), many)
    sizes = np.diff(np.append(begins, len(surplus)))
    return np.repeat(np.add.reduceat(surplus, begins) / sizes, sizes)


class _Bound(NamedTuple):
    """surplus: [slots], devices that the chosen calls leave free; below 0 where they need more than there are."""

    requests: float
    surplus: Floats


def _bound(priced: Sequence[_PricedLane], prices: Floats, grid_s: Floats, devices: int) -> _Bound:
    paid = np.concatenate([[0.0], np.cumsum(prices)])
    chosen = [lane.best(paid) for lane in priced]
    requests = devices * float(paid[-1]) + sum(each.gain for each in chosen)
    start_s = np.concatenate([each.start_s for each in chosen])
    end_s = start_s + np.concatenate([each.call_s for each in chosen])
    ended = _passed(start_s, len(grid_s)) - _passed(end_s, len(grid_s))
    return _Bound(requests, devices - np.diff(ended))


def _passed(at_s: Floats, points: int) -> Floats:
    """[points], how much time passed since each of `at_s`, all together, in slots."""
    slot = np.minimum(at_s / SLOT_S, points - 1)
    whole = slot.astype(np.int64)
    first = np.bincount(whole + 1, 1 - (slot - whole), points + 2)
    second = np.bincount(whole + 2, slot - whole, points + 2)
    return np.cumsum(np.cumsum(first + second))[:points]


class _Chosen(NamedTuple):
    """The calls of a lane that gain most: requests in time, less what they pay."""

    gain: float
    start_s: Floats
    call_s: Floats


class _PricedLane:
    """All runs of neighbours that one call could answer in time, in order of their last request."""

    def __init__(self, lane: SimulatedLane, deadline_s: float, grid_s: Floats, *, one_device: bool) -> None:
        last, rows = _runs(lane, deadline_s)
        call_s = lane.call_s[rows - 1]
        self._total = len(lane)
        self._rows, self._before, self._call_s = rows, last - rows, call_s
        self._of_last = np.searchsorted(last, np.arange(len(lane) + 2)).tolist()

        earliest_s = lane.at_s[last - 1]
        latest_s = lane.at_s[last - rows] + deadline_s - (call_s if one_device else lane.call_s[0])
        self._starts = [_Starts(each_s, call_s, earliest_s, latest_s, grid_s) for each_s in np.unique(call_s)]

    def best(self, paid: Floats) -> _Chosen:
        """`paid` is the price of device time from 0 to each point of the grid."""
        price = np.empty(len(self._rows))
        for starts in self._starts:
            price[starts.runs] = starts.cheapest(paid)

        gained = np.zeros(self._total + 1)
        chosen = np.full(self._total + 1, -1)
        gain = self._rows - price
        for count in range(1, self._total + 1):
            gained[count] = gained[count - 1]
            begin, end = self._of_last[count], self._of_last[count + 1]
            if begin < end:
                gains = gained[self._before[begin:end]] + gain[begin:end]
                most = int(gains.argmax())
                if gains[most] > gained[count]:
                    gained[count], chosen[count] = gains[most], begin + most
        runs = self._followed(chosen)
        start_s = np.empty(len(self._rows))
        for starts in self._starts:
            mine = runs[self._call_s[runs] == starts.call_s]
            start_s[mine] = starts.cheapest_start_s(mine)
        return _Chosen(float(gained[-1]), start_s[runs], self._call_s[runs])

    def _followed(self, chosen: Ints) -> Ints:
        """The runs on the way to the end."""
        runs, count = [], self._total
        while count > 0:
            run = int(chosen[count])
            if run >= 0:
                runs.append(run)
            count = int(self._before[run]) if run >= 0 else count - 1
        return np.array(runs, np.int64)


def _runs(lane: SimulatedLane, deadline_s: float) -> tuple[Ints, Ints]:
    """Last request (1 is the first of the lane) and rows of each run, in order of the last."""
    last, rows = [], []
    for many in range(1, min(len(lane), len(lane.call_s)) + 1):
        newest = np.arange(many, len(lane) + 1)
        waits_s = lane.at_s[newest - 1] - lane.at_s[newest - many]
        newest = newest[waits_s + lane.call_s[many - 1] <= deadline_s]
        last.append(newest)
        rows.append(np.full(len(newest), many))
    order = np.lexsort((np.concatenate(rows), np.concatenate(last)))
    return np.concatenate(last)[order], np.concatenate(rows)[order]


class _Starts:
    """When runs whose calls take `call_s` may start, and at which start that is cheapest.

    Prices are constant within a slot, so what a call pays is linear in its start between points at which its start or
    its end passes from one slot to the next. The least of a window is at one of these points, or above the least of
    those around it. It is looked up in a table of the least of 1, 2, 4, ... points from each on.
    """

    def __init__(self, call_s: float, all_call_s: Floats, earliest_s: Floats, latest_s: Floats, grid_s: Floats) -> None:
        self.call_s = call_s
        self.runs = np.flatnonzero(all_call_s == call_s)
        self._grid_s = grid_s
        self._points_s = np.unique(np.concatenate([grid_s, grid_s[grid_s >= call_s] - call_s]))
        self._begin = np.searchsorted(self._points_s, earliest_s[self.runs], "right") - 1
        end = np.searchsorted(self._points_s, latest_s[self.runs], "left") + 1
        self._end = np.clip(end, self._begin + 1, len(self._points_s))
        self._level = np.log2(self._end - self._begin).astype(np.int64)
        self._second = self._end - (1 << self._level)
        self._price = np.zeros(len(self._points_s))

    def cheapest(self, paid: Floats) -> Floats:
        """[runs], what each pays at least."""
        ends = np.interp(self._points_s + self.call_s, self._grid_s, paid)
        self._price = least = ends - np.interp(self._points_s, self._grid_s, paid)
        table = [least]
        for level in range(int(self._level.max())):
            least = least.copy()
            np.minimum(least[: -(1 << level)], table[-1][1 << level :], out=least[: -(1 << level)])
            table.append(least)
        levels = np.array(table)
        return np.minimum(levels[self._level, self._begin], levels[self._level, self._second])

    def cheapest_start_s(self, runs: Ints) -> Floats:
        """[runs], by the prices of the last `cheapest`."""
        places = np.searchsorted(self.runs, runs).tolist()
        windows = [(int(self._begin[place]), int(self._end[place])) for place in places]
        return np.array([self._points_s[begin + self._price[begin:end].argmin()] for begin, end in windows])
