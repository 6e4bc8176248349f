"""The pace of calls: the seconds that a call takes of the machine, by which batch sizes are chosen. No I/O, no clock.

A call's own seconds (cost_model.py) do not tell at which size most rows are answered:
1. Time passes between calls: replies, reading, threads that wake. While requests wait, it belongs to the call after it.
2. Calls on devices share the machine with calls beside them; during a call on the event loop no other call begins.
3. One call tells little: it may be the first of its shape, or have been held up. Until a size was called `_TRIED` times
   a row of it counts as no dearer than at the best size, as far as estimates can be wrong.
"""

from __future__ import annotations

from app.batching.costs.curve import CostCurve

#: The first calls of a size, of which the quickest counts. Chosen.
_TRIED = 3

#: An untried size may be quicker than estimated by this factor, or by the calls that share the machine if they are
#: more. Chosen.
_DOUBT = 2.0

#: The reach of the average of a size, in calls. Chosen.
CALLS = 16

#: A call counts as at most this many times the average: one that was held up says little about the next. Chosen.
OUTLIER = 4.0

#: A change of an average by this share is worth a new curve. Chosen.
DRIFT = 0.1


class Pace:
    """Recent averages of the seconds that calls take of the machine, by their rows.

    Attributes:
        curve: these seconds for each size; it is redrawn by `record` and `follow`.
    """

    __slots__ = ("_averages", "_calls_beside", "_drawn", "curve")

    def __init__(self, curve: CostCurve) -> None:
        self._averages: dict[int, tuple[float, int]] = {}  # seconds by size, and of how many calls
        self._calls_beside = 1
        self._drawn: dict[int, float] = {}
        self.curve = curve

    def record(self, rows: int, seconds: float, calls_beside: int, curve: CostCurve, *, stale: bool) -> None:
        """Counts a call.

        Args:
            rows: padding included.
            seconds: from the time when the machine was free for it until its end.
            calls_beside: the number of calls that shared the machine meanwhile, itself included.
            curve: the calls' own seconds, as they are known now.
            stale: the size was not called for long: this call counts as much as those before.
        """
        self._calls_beside = max(self._calls_beside, calls_beside)
        share_s = seconds / calls_beside
        average_s, calls = self._averages.get(rows, (share_s, 0))
        calls += 1
        if calls <= _TRIED:
            average_s = min(average_s, share_s)
        else:
            average_s += (min(share_s, OUTLIER * average_s) - average_s) / (2 if stale else min(calls, CALLS))
        self._averages[rows] = average_s, calls
        if calls <= _TRIED or abs(average_s - self._drawn[rows]) > DRIFT * average_s:
            self.follow(curve)

    def follow(self, curve: CostCurve) -> None:
        """Draws the curve anew. `curve` has the calls' own seconds, by which untried sizes are estimated."""
        self._drawn = {rows: average_s for rows, (average_s, _) in self._averages.items()}
        tried = {rows: average_s for rows, (average_s, calls) in self._averages.items() if calls >= _TRIED}
        if not tried:
            self.curve = curve
            return
        row_s = min([average_s / rows for rows, average_s in tried.items()])
        doubt = max(_DOUBT, self._calls_beside)
        seconds = dict(tried)
        for rows in curve.sizes:
            if rows not in tried:
                like = min([size for size in tried if size > rows], default=max(tried))
                estimated_s = curve.call_s(rows) * tried[like] / curve.call_s(like)
                seconds[rows] = min(estimated_s, max(estimated_s / doubt, row_s * rows))
        self.curve = CostCurve.through(curve.sizes, seconds)
