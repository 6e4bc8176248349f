"""An upper bound of goodput for any batching, computed with knowledge of all arrivals.

It is a relaxation: a row takes its share of the call that is cheapest per row, and rows are computed one by one. The
number of rows in time is then the largest of any order (Kise, Ibaraki and Mine, 1978: if a row would be late, drop the
row of the busy stretch that shortens it most). No batching reaches more, and usually none reaches as much.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.simulator.simulation import Arrival, CallCosts


def most_in_time(arrivals: Sequence[Arrival], costs: CallCosts, deadline_s: float, sizes: Sequence[int]) -> int:
    """How many requests could be answered in time by calls of these `sizes`."""
    row_s = {each.length: min(costs.call_s(size, each.length) / size for size in sizes) for each in arrivals}
    longest_s = max(row_s.values())
    stretch: list[tuple[float, float]] = []  # arrival and seconds of those computed since the device was last idle
    kept, end_s = 0, 0.0
    for arrival in arrivals:
        if arrival.at_s >= end_s:
            stretch, end_s = [], arrival.at_s
        own_s = row_s[arrival.length]
        stretch.append((arrival.at_s, own_s))
        end_s += own_s
        kept += 1
        if end_s > arrival.at_s + deadline_s:
            kept -= 1
            del stretch[_whose_loss_gains_most(stretch, end_s) if own_s < longest_s else -1]
            end_s = _end_of(stretch, arrival.at_s)
    return kept


def _whose_loss_gains_most(stretch: Sequence[tuple[float, float]], end_s: float) -> int:
    best, most_s, slack_s, start_s = len(stretch) - 1, 0.0, float("inf"), end_s
    for place in range(len(stretch) - 1, -1, -1):
        at_s, own_s = stretch[place]
        start_s -= own_s
        if min(own_s, slack_s) > most_s:
            best, most_s = place, min(own_s, slack_s)
        slack_s = min(slack_s, start_s - at_s)
        if slack_s <= most_s:
            break
    return best


def _end_of(stretch: Sequence[tuple[float, float]], now_s: float) -> float:
    end_s = stretch[0][0] if stretch else now_s
    for at_s, own_s in stretch:
        end_s = max(end_s, at_s) + own_s
    return end_s
