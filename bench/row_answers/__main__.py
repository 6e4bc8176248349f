"""Every answer to the corpus of `tests/row_corpus` beside the model's own: how many are wrong?

    python -m bench.row_answers [--requests 1000000] [--ways plain frontends pipeline drop-in replicas] [--callers 24]
                                [--distinct 16] [--within 10] [--models NAME ...] [--seed 0] [--json FILE]

80 small models whose rows see each other, and as many twins whose rows do not. Each way of serving them gets its share
of the requests (plain three tenths, two replicas one, the others two each). In each way: first every model is asked by
one caller as soon as it is loaded; then callers ask one model after the other, all the same one, so that calls would be
shared; half way all models get a new version while they are asked; at three quarters the server is restarted, and its
first requests come at once. Before the first request, and after at most ten seconds of traffic of its own, the batching
page says which twins share calls. Requests are random (`--distinct` of each model, of 1 to 5 rows).

Prints a table, and JSON with `--json`. The exit status is 1 if an answer was wrong, or a request was refused (except
through pipelines, which refuse outputs without rows). Predicted: 0 wrong; all twins share calls.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import uvloop

from bench.row_answers.client import Tally, ask, message
from bench.row_answers.servers import PIPED, WAYS, Way, batched, put_pipelines, put_version, served
from bench.support.machine import commit, machine_line
from tests.row_corpus.asked import Asked, asked
from tests.row_corpus.catalog import CASES, write
from tests.row_corpus.row_case import DirectCalls, RowCase

Requests = Mapping[str, Sequence[Asked]]

#: Shares of all requests.
_SHARES = {"plain": 0.3, "frontends": 0.2, "pipeline": 0.2, "drop-in": 0.2, "replicas": 0.1}

#: Rows of the requests of a model, in turn.
_ROWS = (1, 3, 2, 1, 5, 1, 4, 2)

#: A caller sends so many requests to a model before it goes on to the next one. Chosen: calls are shared for a while.
_IN_A_ROW = 8

#: Every so many requests is one of a single caller.
_LONE = 20


@dataclass(slots=True)
class Found:
    """One way. first: requests that came as soon as models were loaded. twins, at_once, soon: how many twins there are,
    share calls before the first request, and after ten seconds of traffic. late: the others.
    """

    first: Tally = field(default_factory=Tally)
    lone: Tally = field(default_factory=Tally)
    together: Tally = field(default_factory=Tally)
    swapped: Tally = field(default_factory=Tally)
    restarted: Tally = field(default_factory=Tally)
    twins: int = 0
    at_once: int = 0
    soon: int = 0
    late: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def phases(self) -> dict[str, Tally]:
        names = ("first", "lone", "together", "swapped", "restarted")
        return {name: getattr(self, name) for name in names}

    def all(self) -> Tally:
        total = Tally()
        for each in self.phases().values():
            total.add(each)
        return total


class Traffic:
    """What callers send: endlessly many requests of few models at a time."""

    def __init__(self, requests: Requests) -> None:
        self._written = {name: [(message(each), each) for each in own] for name, own in requests.items()}
        self._next = 0

    def once(self) -> Iterator[tuple[bytes, Asked]]:
        return itertools.chain.from_iterable(self._written.values())

    def in_turn(self, number: int, callers: int) -> list[Iterator[tuple[bytes, Asked]]]:
        """So many of each caller; they are at the same model at about the same time, with other requests.

        It goes on with the model after that of the last time.
        """
        begin, models = self._next, list(self._written.values())
        self._next = (begin + number // _IN_A_ROW + 1) % len(models)
        return [self._of_caller(models[begin:] + models[:begin], number, caller) for caller in range(callers)]

    def _of_caller(
        self, models: Sequence[Sequence[tuple[bytes, Asked]]], number: int, caller: int
    ) -> Iterator[tuple[bytes, Asked]]:
        own = (
            each
            for lap, model in enumerate(itertools.cycle(models))
            for place in range(_IN_A_ROW)
            for each in [model[(lap * 7 + place + caller * 3) % len(model)]]
        )
        return itertools.islice(own, number)

    def of(self, model: str, seconds: float, caller: int) -> Iterator[tuple[bytes, Asked]]:
        own, end_s = self._written[model], time.monotonic() + seconds
        for place in itertools.count(caller * 3):
            if time.monotonic() > end_s:
                return
            yield own[place % len(own)]


class Run:
    """One way of serving, from its start to its end.

    Args:
        number: of requests.
        options: callers; within, the seconds of traffic until a twin has to share calls.
    """

    def __init__(self, way: Way, models: Path, requests: Requests, number: int, options: argparse.Namespace) -> None:
        self.found = Found()
        self._way, self._models, self._number = way, models, number
        self._callers, self._within_s = options.callers, options.within
        self._names = list(requests)
        self._log = models.parent / f"{way.name}.log"
        self._traffic = Traffic(requests)
        self._twins = [each.name for each in CASES if not each.mixes and each.name in requests]

    def run(self, version: int) -> Found:
        begin_s, found = time.monotonic(), self.found
        quarter = self._number // 4
        with served(self._way, self._models, self._names, self._log) as ports:
            found.twins = len(self._twins)
            found.at_once = sum(batched(ports, name) for name in self._twins)
            found.first.add(self._ask_once(ports))
            self._wait_for_twins(ports)
            found.lone.add(uvloop.run(ask(ports, self._traffic.in_turn(self._number // _LONE, 1))))
            found.together.add(self._ask(ports, 2 * quarter - self._number // _LONE))
            put_version(self._models, self._names, version)
            found.swapped.add(self._ask(ports, quarter))
        with served(self._way, self._models, self._names, self._log) as ports:
            found.restarted.add(self._ask_once(ports))
            found.restarted.add(self._ask(ports, quarter))
        found.seconds = time.monotonic() - begin_s
        return found

    def _ask_once(self, ports: Sequence[int]) -> Tally:
        return uvloop.run(ask(ports, [self._traffic.once()]))

    def _ask(self, ports: Sequence[int], number: int) -> Tally:
        each = max(1, number // self._callers)
        return uvloop.run(ask(ports, self._traffic.in_turn(each, self._callers)))

    def _wait_for_twins(self, ports: Sequence[int]) -> None:
        """Those that do not share calls are asked, each for so many seconds at most, until they do."""
        found = self.found
        found.soon = found.at_once
        for name in [each for each in self._twins if not batched(ports, each)]:
            end_s, done = time.monotonic() + self._within_s, False
            while time.monotonic() < end_s and not done:
                found.together.add(uvloop.run(ask(ports, [self._traffic.of(name, 0.5, caller) for caller in range(8)])))
                done = batched(ports, name)
            found.soon += done
            if not done:
                found.late.append(name)


def requests_of(direct: DirectCalls, cases: Sequence[RowCase], distinct: int, seed: int) -> dict[str, list[Asked]]:
    rows = list(itertools.islice(itertools.cycle(_ROWS), distinct))
    return {case.name: asked(direct, case, rows, seed) for case in cases}


def piped(requests: Requests) -> dict[str, list[Asked]]:
    """The same requests to the models' pipelines."""
    return {
        f"{PIPED}{name}": [Asked(f"{PIPED}{name}", each.inputs, each.expected, each.body) for each in own]
        for name, own in requests.items()
    }


class PipedRun(Run):
    """Through pipelines: versions of the models below them are swapped."""

    def __init__(self, way: Way, models: Path, requests: Requests, number: int, options: argparse.Namespace) -> None:
        super().__init__(way, models, piped(requests), number, options)
        put_pipelines(models, requests)
        self._names = list(requests)


def table(found: Mapping[str, Found]) -> str:
    lines = [
        "| way | requests | wrong | refused | twins batched at once | within 10 s | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in found.items():
        total = each.all()
        sums = [sum(count.values()) for count in (total.asked, total.wrong, total.refused)]
        twins = f"{each.at_once} of {each.twins} | {each.soon} of {each.twins}" if each.twins else "- | -"
        lines.append(f"| {name} | {' | '.join(f'{value:,}' for value in sums)} | {twins} | {each.seconds:.0f} |")
    return "\n".join(lines)


def document(found: Mapping[str, Found]) -> dict[str, object]:
    ways = {}
    for name, each in found.items():
        total = each.all()
        ways[name] = {
            "phases": {
                phase: {key: sum(getattr(tally, key).values()) for key in ("asked", "wrong", "refused")}
                for phase, tally in each.phases().items()
            },
            "wrong": dict(total.wrong),
            "refused": dict(total.refused),
            "problems": total.problems,
            "twins": {"all": each.twins, "at once": each.at_once, "within 10 s": each.soon, "late": each.late},
            "seconds": round(each.seconds, 1),
        }
    return {"commit": commit(), "machine": machine_line(), "ways": ways}


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Found]:
    cases = [each for each in CASES if not options.models or each.name in options.models]
    models = folder / "models"
    write(models, cases)
    requests = requests_of(DirectCalls(models), cases, options.distinct, options.seed)
    whole = sum(_SHARES[name] for name in options.ways)
    found = {}
    for version, name in enumerate(options.ways, 2):
        number = int(options.requests * _SHARES[name] / whole)
        run = (PipedRun if WAYS[name].piped else Run)(WAYS[name], models, requests, number, options)
        found[name] = run.run(version)
        print(table({name: found[name]}).splitlines()[-1], file=sys.stderr, flush=True)
    return found


def failed(found: Mapping[str, Found]) -> bool:
    totals = {name: each.all() for name, each in found.items()}
    return any(each.wrong or (each.refused and not WAYS[name].piped) for name, each in totals.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--callers", type=int, default=24)
    parser.add_argument("--distinct", type=int, default=16, help="requests of each model")
    parser.add_argument("--within", type=float, default=10.0, help="seconds of traffic until a twin shares calls")
    parser.add_argument("--models", nargs="+", help="of the corpus; by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ferry-rows-") as name:
        found = measured(options, Path(name))
    print(table(found))
    worst = sum((each.all().wrong for each in found.values()), start=Tally().wrong).most_common(20)
    print("\n".join(f"{count:>9,} wrong: {model}" for model, count in worst))
    if options.json:
        options.json.write_text(json.dumps(document(found), indent=1))
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
