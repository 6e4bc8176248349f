"""What all parts are told, and how they take turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.pipelines.served import Run


@dataclass(frozen=True, slots=True)
class Options:
    """seconds: of each way in a round; cores: that everything has; swaps: of versions."""

    rounds: int
    seconds: float
    callers: int
    cores: int
    swaps: int


async def in_turn(ways: Mapping[str, Callable[[], Awaitable[Run]]], rounds: int) -> dict[str, list[Run]]:
    """The runs of each way, in turn, so that ratios hold although the machine's speed drifts; the first warms up."""
    runs: dict[str, list[Run]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, run in ways.items():
            one = await run()
            if number:
                runs[way].append(one)
    for way, own in runs.items():
        rates = [each.rate for each in own]
        cpu_us = median(1e6 * each.cpu_s / each.answered for each in own)
        print(f"  {way:36} {spread(rates)} a second, processor {cpu_us:.0f} us each", flush=True)
    return runs


def spread(values: Sequence[float], form: str = ".0f") -> str:
    """Median (least-most)."""
    return f"{median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def ratios(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """By round."""
    return [one / other for one, other in zip(mine, theirs, strict=True)]
