"""Curves of calls whose costs are known, for tests of plans."""

from __future__ import annotations

from collections.abc import Sequence

from app.planning.measured_curve import MeasuredCurve

SIZES = (1, 2, 4, 8, 16, 32, 64)


def curve_of(
    fixed_s: float,
    row_s: float,
    *,
    machine: str = "cpu",
    sizes: Sequence[int] = SIZES,
    slots: int = 1,
    spread: Sequence[float] = (1.0,),
) -> MeasuredCurve:
    """Calls of fixed_s + rows * row_s seconds."""
    seconds = {rows: fixed_s + row_s * rows for rows in sizes}
    return MeasuredCurve(machine, "m", "serving_default", seconds, slots, spread)
