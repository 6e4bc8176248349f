"""Latency of a served model while versions of another model load, as a multiple of that without.

    python -m bench.loading_beside [--rounds 5] [--seconds 5] [--rate 200] [--served mlp] [--loaded transformer]

In each round the served model is asked at a fixed rate for some seconds twice, in alternating order: while nothing else
happens, and while new versions of another model are loaded one after the other. Prints p50 and p99 in milliseconds and,
by round, their ratios; exits with 1 if the median ratio of p99 is above 1.5.

The rate is low, and requests are sent by the clock. A closed loop takes all that a small machine has; a load then takes
its core away, and p99 says how many cores there are (on 2 cores: 13 times) instead of how long a load stops requests.

The same load is then put on a bare server, which shares nothing with Ferry but the machine. What its p99 grows by is
the cores' share; only what Ferry's grows by beyond that is the interpreter's, and can be mended in Ferry.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from app.bench.load_connection import write_request
from app.bench.open_loop import LoadTarget, OpenLoopResult, open_loop, run_precisely
from bench.models import ensure_models, read_samples, saved_model
from bench.support.bare_server import bare_server
from bench.support.figures import Spread, ratio_by_round
from bench.support.forms import FORMS
from bench.support.live_server import is_tuned, live_server
from bench.support.workloads import WORKLOADS

#: Chosen: the p99 of a served model may grow by this much while another loads.
MOST = 1.5

#: Seconds between two versions. Chosen: most of the time one is being loaded.
_BETWEEN_S = 1.0


class Servers(NamedTuple):
    """The ports of the server that is asked and loads `versions`, and of the bare one."""

    ferry: int
    bare: int
    versions: _Versions


class Beside(NamedTuple):
    """The answers of one server in one round, alone and beside loads."""

    alone: OpenLoopResult
    loading: OpenLoopResult


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second: a few percent of what it answers")
    parser.add_argument("--served", default="mlp", help="a workload of bench.support.workloads")
    parser.add_argument("--loaded", default="transformer", help="a model of bench.models")
    options = parser.parse_args()
    ensure_models()
    requests = _requests(options.served)
    rounds: dict[str, list[Beside]] = {"ferry": [], "bare": []}
    with _servers(WORKLOADS[options.served].model, options.loaded) as servers:
        for number in range(options.rounds + 1):
            for name, asked in {"ferry": servers.ferry, "bare": servers.bare}.items():
                runs = {}
                for loading in (False, True) if number % 2 else (True, False):
                    while not is_tuned(servers.ferry):
                        threading.Event().wait(0.1)
                    with servers.versions.arriving(loading):
                        target = LoadTarget("127.0.0.1", asked)
                        load = open_loop(target, requests, options.rate, options.seconds, seed=number)
                        runs[loading] = run_precisely(load)
                if number:  # the first round warms up
                    rounds[name].append(Beside(runs[False], runs[True]))
    for each in report(rounds):
        print(each)
    sys.exit(p99_ratio(rounds["ferry"]).median > MOST)


@contextmanager
def _servers(served: str, loaded: str) -> Iterator[Servers]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        models = Path(folder) / "models"
        (models / "other").mkdir(parents=True)
        (models / served).symlink_to(saved_model(served).parent)
        versions = _Versions(models / "other", saved_model(loaded))
        settings = {"grpc_port": 0, "poll_interval_s": 0.1, "variant_cache": Path(folder) / "cache"}
        ferry = stack.enter_context(live_server(**settings, models=models))
        yield Servers(ferry, stack.enter_context(bare_server()), versions)


def _requests(served: str) -> list[bytes]:
    workload = WORKLOADS[served]
    bodies = [FORMS["v1-json"].write(workload.input, row) for row, _ in read_samples(workload.model)]
    path = f"/v1/models/{workload.model}:predict"
    return [write_request("POST", path, "127.0.0.1", body.headers, body.content) for body in bodies]


def report(rounds: Mapping[str, Sequence[Beside]]) -> Iterator[str]:
    for server, besides in rounds.items():
        for figure, q in {"p50": 0.5, "p99": 0.99}.items():
            alone, beside, ratio = _spreads(besides, q)
            yield (
                f"{server:5} {figure}: {alone.median:.2f} ms alone, {beside.median:.2f} ms beside loads, "
                f"{ratio.median:.2f} ({ratio.least:.2f}-{ratio.most:.2f}) times"
            )
        failed = sum(each.alone.failed + each.loading.failed for each in besides)
        if failed:
            yield f"{server}: {failed} requests failed"


def p99_ratio(besides: Sequence[Beside]) -> Spread:
    """p99 beside loads as a multiple of that alone."""
    return _spreads(besides, 0.99)[2]


def _spreads(besides: Sequence[Beside], q: float) -> tuple[Spread, Spread, Spread]:
    """Of the quantile `q`: milliseconds alone and beside loads, and their ratio by round. A failure is infinite."""
    alone = {number: 1e3 * each.alone.latency_s(q) for number, each in enumerate(besides)}
    beside = {number: 1e3 * each.loading.latency_s(q) for number, each in enumerate(besides)}
    ratio = ratio_by_round(beside, alone)
    assert ratio is not None
    return Spread.of(list(alone.values())), Spread.of(list(beside.values())), ratio


class _Versions:
    """New versions of one model, each a link to the same files."""

    def __init__(self, folder: Path, files: Path) -> None:
        self._folder = folder
        self._files = files
        self._number = 0

    @contextmanager
    def arriving(self, wanted: bool) -> Iterator[None]:
        """While the block runs, if they are wanted."""
        ended = threading.Event()
        thread = threading.Thread(target=self._arrive, args=(ended,))
        if wanted:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if wanted:
                thread.join()

    def _arrive(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self.add()
            ended.wait(_BETWEEN_S)

    def add(self) -> None:
        self._number += 1
        (self._folder / str(self._number)).symlink_to(self._files)


if __name__ == "__main__":
    main()
