"""All peers at one workload: closed loop, then open loop, in alternating runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from bench.peers.descriptor import Peer
from bench.peers.environments import EnvironmentFailed
from bench.peers.peer_under_load import PeerUnderLoad
from bench.peers.plan import Run, alternating, closed_s, common_rate, open_s, rejection, start_s
from bench.peers.process import PeerFailed
from bench.support.progress import Progress
from bench.support.workloads import Workload

#: What the open loop's generator can send beside a busy server on two cores and still be in time.
GENERATOR_LIMIT = 3000.0

#: A peer may fail once, loudly, and is started again for its next run; the second time it is out.
_CHANCES = 2


@dataclass(slots=True)
class PeerFigures:
    """Runs by round. `open` is at the rate that all peers get, `own` at 70 % of what the peer reached itself.

    `not_run` says why there are no figures; `failures` what went wrong in runs that are left out.
    """

    closed: dict[int, dict[str, Any]] = field(default_factory=dict)
    open: dict[int, dict[str, Any]] = field(default_factory=dict)
    own: dict[int, dict[str, Any]] = field(default_factory=dict)
    about: str = ""
    not_run: str = ""
    failures: list[str] = field(default_factory=list)


Figures = dict[str, PeerFigures]


def compare(workload: Workload, peers: Sequence[Peer], progress: Progress, keep: Callable[[Figures], None]) -> Figures:
    """A peer that does not run has the reason in `not_run`. `keep` gets all figures so far after each round."""
    return _Comparison(workload, peers, progress).run(keep)


class _Comparison:
    def __init__(self, workload: Workload, peers: Sequence[Peer], progress: Progress) -> None:
        self._workload, self._progress = workload, progress
        self._figures = {peer.name: PeerFigures(not_run=rejection(peer, workload)) for peer in peers}
        taking_part = [peer for peer in peers if not rejection(peer, workload)]
        self._servers = {peer.name: PeerUnderLoad(peer, workload) for peer in taking_part}

    def run(self, keep: Callable[[Figures], None]) -> Figures:
        with ExitStack() as ends:
            for server in self._servers.values():
                ends.callback(server.end)
            self._start()
            for run in self._alternate(list(self._servers), self._workload.rounds, keep):
                self._closed(run)
                self._progress.advance(closed_s(self._servers[run.peer].peer, self._workload))
            if self._workload.open_rounds:
                self._open_rounds(keep)
        return self._figures

    def _start(self) -> None:
        """Who measures something at its start does so alone; the others start side by side."""
        alone = [name for name, server in self._servers.items() if server.peer.starts_alone]
        together = [name for name in self._servers if name not in alone]
        for names in [*([name] for name in alone), together]:
            if names:
                self._say(f"starting {', '.join(names)}")
            for name in names:
                self._attempt(name, self._servers[name].launch)
            for name in names:
                if not self._figures[name].failures:
                    self._attempt(name, self._servers[name].get_ready)
                self._figures[name].about = self._servers[name].about
                self._progress.advance(start_s(self._servers[name].peer))

    def _closed(self, run: Run) -> None:
        def once() -> None:
            figures = self._servers[run.peer].closed()
            self._figures[run.peer].closed[run.round] = figures
            self._say(f"round {run.round + 1}, {run.peer}: {figures['rate']:,.0f}/s")

        self._attempt(run.peer, once)

    def _open_rounds(self, keep: Callable[[Figures], None]) -> None:
        names = [name for name, server in self._servers.items() if not server.peer.in_process]
        reached = {name: _median_rate(self._figures[name]) for name in names if self._figures[name].closed}
        models = [rate for name, rate in reached.items() if name != "asgi_echo" and not self._figures[name].not_run]
        if not models:
            return
        rate = common_rate(models, GENERATOR_LIMIT)
        for run in self._alternate(list(reached), self._workload.open_rounds, keep):
            self._open(run, rate, reached[run.peer])
            self._progress.advance(open_s(self._workload))

    def _open(self, run: Run, common: float, reached: float) -> None:
        """The common rate only where the peer can reach it: a queue that grows without end says nothing."""

        def once() -> None:
            mine, server = self._figures[run.peer], self._servers[run.peer]
            rates = ([common] if reached >= common else []) + [min(GENERATOR_LIMIT, 0.7 * reached)]
            *at_common, mine.own[run.round] = done = server.open(rates)
            if at_common:
                mine.open[run.round] = at_common[0]
            latencies = ", ".join(f"p99 {each['p99_ms']:.1f} ms at {each['rate']:,.0f}/s" for each in done)
            self._say(f"open loop, round {run.round + 1}, {run.peer}: {latencies}")

        self._attempt(run.peer, once)

    def _alternate(self, names: Sequence[str], rounds: int, keep: Callable[[Figures], None]) -> Iterator[Run]:
        for run in alternating(names, rounds):
            if not self._figures[run.peer].not_run:
                yield run
            if run.peer == names[-1]:
                keep(self._figures)

    def _attempt(self, name: str, step: Callable[[], None]) -> None:
        figures = self._figures[name]
        try:
            step()
        except (PeerFailed, EnvironmentFailed, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            self._servers[name].end()  # it takes no more CPU; if it has another chance, it starts anew
            reason = " ".join(str(error).split())[:300]
            figures.failures.append(reason)
            if len(figures.failures) >= _CHANCES:
                figures.not_run = reason
            self._say(f"!!! {name} {'not run' if figures.not_run else 'failed, and has one more chance'}: {reason}")

    def _say(self, text: str) -> None:
        self._progress.say(f"{self._workload.name}: {text}")


def _median_rate(figures: PeerFigures) -> float:
    rates = sorted(run["rate"] for run in figures.closed.values())
    return float(rates[len(rates) // 2])
