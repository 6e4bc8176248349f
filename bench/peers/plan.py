"""Which peer runs when. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    round: int
    peer: str


def alternating(peers: Sequence[str], rounds: int) -> Iterator[Run]:
    """A B C, A B C, ...: the machine's speed drifts within minutes, so no peer may have a minute to itself."""
    return (Run(number, peer) for number in range(rounds) for peer in peers)


def common_rate(rates: Sequence[float], limit: float) -> float:
    """Requests a second that every peer gets in the open loop: half of what the best one reached, if the
    generator can send as many.
    """
    return min(limit, 0.5 * max(rates))
