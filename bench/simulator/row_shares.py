"""An upper bound of the requests in time: each row takes its share of the call that is cheapest per row.

Rows are then computed one by one, and the number of rows in time is the largest of any order (Kise, Ibaraki and Mine,
1978: if a row would be late, drop the row of the busy stretch that shortens it most). Several devices are one that is
as many times as fast: a schedule of calls gives each row at least its share between its arrival and its deadline. As
all have the same time until their deadline, a device that may interrupt rows has no more of them in time than first
come first served.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.simulator.simulation import Arrival, CallCosts


def most_by_row_shares(
    arrivals: Sequence[Arrival], costs: CallCosts, deadline_s: float, sizes: Sequence[int], devices: int = 1
) -> int:
    """No schedule of calls of these `sizes` has more requests in time."""
    lengths = {each.length for each in arrivals}
    row_s = {each: min(costs.call_s(size, each) / size for size in sizes) / devices for each in lengths}
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
