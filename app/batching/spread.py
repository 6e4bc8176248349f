"""How many of the rows that wait one of several idle devices takes. Pure."""

from __future__ import annotations

from bisect import bisect_left

from app.batching.cost_curve import CostCurve

#: Handing a batch over has costs of its own, so several must be done in clearly less time than one.
_WORTH = 0.8


def rows_for_each(rows: int, devices: int, curve: CostCurve | None) -> int:
    """An equal share of `rows`, filled up to a size that is computed anyway; all where that saves little or is unknown.

    `devices` are idle and share no hardware.
    """
    if devices < 2 or curve is None:
        return rows
    place = bisect_left(curve.sizes, -(-rows // devices))
    share = curve.sizes[min(place, len(curve.sizes) - 1)]
    return share if share < rows and curve.call_s(share) < _WORTH * curve.call_s(rows) else rows
