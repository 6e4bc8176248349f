"""All peers at one workload: closed loop, then open loop, in alternating runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from bench.environments import EnvironmentFailed
from bench.peers.descriptor import Peer
from bench.peers.peer_under_load import PeerUnderLoad
from bench.peers.plan import Run, alternating, common_rate
from bench.peers.process import PeerFailed
from bench.workloads import Workload

#: What the open loop's generator can send beside a busy server on two cores and still be in time.
GENERATOR_LIMIT = 3000.0


@dataclass(slots=True)
class PeerFigures:
    """Runs by round. `open` is at the rate that all peers get, `own` at 70 % of what the peer reached itself."""

    closed: dict[int, dict[str, Any]] = field(default_factory=dict)
    open: dict[int, dict[str, Any]] = field(default_factory=dict)
    own: dict[int, dict[str, Any]] = field(default_factory=dict)
    about: str = ""
    not_run: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    connections: int
    seconds: float
    rounds: int
    open_loop: bool


Say = Callable[[str], None]


def compare(workload: Workload, peers: Sequence[Peer], load: Load, say: Say) -> dict[str, PeerFigures]:
    """Nobody is left out in silence: who does not run has `not_run`."""
    figures = {peer.name: PeerFigures() for peer in peers}
    with ExitStack() as ends:
        ready = {}
        for peer in peers:
            refusal = _refusal(peer, workload)
            if refusal:
                figures[peer.name].not_run = refusal
                continue
            say(f"{workload.name}: starting {peer.name}")
            under_load = PeerUnderLoad(peer, workload)
            ends.callback(under_load.end)
            if _attempt(figures[peer.name], under_load.start, say, peer.name):
                figures[peer.name].about = under_load.about
                ready[peer.name] = under_load
        _closed_rounds(ready, figures, load, say)
        if load.open_loop:
            _open_rounds(ready, figures, load, say)
    return figures


def _closed_rounds(
    ready: Mapping[str, PeerUnderLoad], figures: Mapping[str, PeerFigures], load: Load, say: Say
) -> None:
    for run, under_load in _alternate(ready, figures, load.rounds):
        mine = figures[run.peer]

        def once(run: Run = run, under_load: PeerUnderLoad = under_load, mine: PeerFigures = mine) -> None:
            mine.closed[run.round] = done = under_load.closed(load.connections, load.seconds)
            say(f"{under_load.workload.name}: round {run.round + 1}, {run.peer}: {done['rate']:,.0f}/s")

        _attempt(mine, once, say, run.peer)


def _open_rounds(ready: Mapping[str, PeerUnderLoad], figures: Mapping[str, PeerFigures], load: Load, say: Say) -> None:
    servers = {name: each for name, each in ready.items() if not each.peer.in_process}
    reached = {name: _median_rate(figures[name]) for name in servers if figures[name].closed}
    models = [rate for name, rate in reached.items() if not name.startswith("asgi_echo")]
    if not models:
        return
    rate = common_rate(models, GENERATOR_LIMIT)
    for run, under_load in _alternate(servers, figures, load.rounds):
        mine = figures[run.peer]

        def once(run: Run = run, under_load: PeerUnderLoad = under_load, mine: PeerFigures = mine) -> None:
            own_rate = min(GENERATOR_LIMIT, 0.7 * reached[run.peer])
            mine.open[run.round], mine.own[run.round] = done = under_load.open((rate, own_rate), load.seconds)
            latencies = ", ".join(f"p99 {each['p99_ms']:.1f} ms at {each['rate']:,.0f}/s" for each in done)
            say(f"{under_load.workload.name}: round {run.round + 1}, {run.peer}: {latencies}")

        _attempt(mine, once, say, run.peer)


def _alternate(
    ready: Mapping[str, PeerUnderLoad], figures: Mapping[str, PeerFigures], rounds: int
) -> Iterator[tuple[Run, PeerUnderLoad]]:
    for run in alternating(list(ready), rounds):
        if not figures[run.peer].not_run:
            yield run, ready[run.peer]


def _attempt(figures: PeerFigures, step: Callable[[], None], say: Say, name: str) -> bool:
    try:
        step()
    except (PeerFailed, EnvironmentFailed, RuntimeError, OSError) as error:
        figures.not_run = " ".join(str(error).split())
        say(f"!!! {name} not run: {figures.not_run}")
        return False
    return True


def _refusal(peer: Peer, workload: Workload) -> str:
    if peer.workloads and workload.name not in peer.workloads:
        return "not made for this workload"
    if not peer.in_process and workload.wire not in peer.endpoints:
        return f"has no {workload.wire} form"
    return ""


def _median_rate(figures: PeerFigures) -> float:
    rates = sorted(run["rate"] for run in figures.closed.values())
    return float(rates[len(rates) // 2])
