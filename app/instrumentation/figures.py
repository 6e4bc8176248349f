"""Numbers as pages show them."""

from __future__ import annotations

from app.core.batching_explanation import DurationsDocument
from app.instrumentation.histogram import Histogram


def rounded(value: float) -> float:
    """The value, to four significant digits."""
    return float(f"{value:.4g}")


def share(part: float, whole: float) -> float:
    """The part of a whole; 0 if the whole is 0."""
    return rounded(part / whole) if whole else 0.0


def durations(seconds: Histogram) -> DurationsDocument | None:
    if not seconds.count:
        return None
    mean_s = seconds.total / seconds.count
    p50, p90, p99 = (rounded(1e3 * seconds.quantile(part)) for part in (0.5, 0.9, 0.99))
    return DurationsDocument(mean=rounded(1e3 * mean_s), p50=p50, p90=p90, p99=p99)
