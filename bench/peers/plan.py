"""Which peer runs when, and how long that takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.peers.descriptor import Peer
from bench.support.workloads import Workload

#: What a start takes; several servers start side by side, two limits search for their best batch size.
START_S, SEARCH_S = 6.0, 16.0

#: Beside its seconds a run costs a second of warming up, the asking for known answers and wrk's own start.
CLOSED_EXTRA_S, OPEN_EXTRA_S = 1.7, 2.5

#: A slow peer is measured longer than others, so that its first batches do not decide, up to a limit.
ANSWERS_EACH, LONGEST_S = 4, 8.0

#: Why a peer has no figures in a workload that it was not made for.
NOT_MADE = "not made for this workload"


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


def run_s(seconds: float, connections: int, rate: float) -> float:
    """How long a peer that answers `rate` a second is measured: at least until each connection got some answers."""
    return max(seconds, min(LONGEST_S, ANSWERS_EACH * connections / max(rate, 1e-3)))


def rejection(peer: Peer, workload: Workload) -> str:
    """Why the peer has no part in the workload; empty where it has."""
    if peer.workloads and workload.name not in peer.workloads:
        return NOT_MADE
    if not peer.in_process and workload.wire not in peer.endpoints:
        return f"has no {workload.wire} form"
    return ""


def start_s(peer: Peer) -> float:
    return SEARCH_S if peer.starts_alone else START_S


def closed_s(peer: Peer, workload: Workload) -> float:
    """One run."""
    return workload.seconds + (0.0 if peer.in_process else CLOSED_EXTRA_S)


def open_s(workload: Workload) -> float:
    """One run of one server: two rates."""
    return 2 * workload.seconds + OPEN_EXTRA_S


def expected_s(peers: Sequence[Peer], workload: Workload) -> float:
    """All that the comparison at one workload takes."""
    taking_part = [peer for peer in peers if not rejection(peer, workload)]
    return sum(
        start_s(peer)
        + workload.rounds * closed_s(peer, workload)
        + (0 if peer.in_process else workload.open_rounds * open_s(workload))
        for peer in taking_part
    )
