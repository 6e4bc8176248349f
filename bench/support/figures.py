"""Medians, spread and ratios of what alternating runs gave, and the file that keeps them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError without values."""
        if not values:
            raise ValueError("a spread needs values")
        return cls(statistics.median(values), min(values), max(values))


def ratio_by_round(mine: Mapping[Any, float], theirs: Mapping[Any, float]) -> Spread | None:
    """Of the rounds that both ran: within a round the machine was about equally fast for both."""
    common = [mine[n] / theirs[n] for n in sorted(mine.keys() & theirs.keys()) if theirs[n] > 0]
    return Spread.of(common) if common else None


def save(file: Path | None, figures: Any) -> None:
    """Write the figures of a script as JSON, if its caller names a file."""
    if file:
        file.write_text(json.dumps(figures, indent=1))
