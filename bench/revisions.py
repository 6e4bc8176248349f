"""Is this tree as fast as another revision? Runs the closed loops of the benchmark on both in turn.

    python -m bench.revisions REVISION [--workloads mlp digits ...] [--pairs 3] [--rounds 5] [--seconds 2] [--json FILE]

Both servers run with defaults, on the same packages, and are up at the same time; within a round each is loaded once,
and the order alternates. Each searches its execution variants before it is measured, so the choice is part of the
comparison. What a server chose at its start, and where its memory lies, is chance and lasts as long as it runs. So
servers are started anew for each pair, with some rounds for each. Exits with 1 if a median is below 0.97.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.models import ensure_models, read_samples, saved_model
from bench.support import h2load, wrk
from bench.support.cache import ROOT
from bench.support.figures import Spread, save
from bench.support.forms import FORMS, Body
from bench.support.live_server import live_process
from bench.support.machine import require
from bench.support.other_tree import other_tree
from bench.support.workloads import WORKLOADS, Workload

LEAST = 0.97

#: The form and the path of what travels so.
_WAYS = {
    "json": ("v1-json", "/v1/models/{}:predict"),
    "http2": ("v1-json", "/v1/models/{}:predict"),
    "binary": ("v2-binary", "/v2/models/{}/infer"),
    "grpc": ("grpc", "/inference.GRPCInferenceService/ModelInfer"),
}

#: And those over HTTP/2, which few other servers speak.
_COMPARED = WORKLOADS | {
    f"mlp-{wire}": replace(WORKLOADS["mlp"], name=f"mlp-{wire}", wire=wire) for wire in ("grpc", "http2")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="as git knows it")
    parser.add_argument("--workloads", nargs="+", choices=_COMPARED, default=list(_COMPARED))
    parser.add_argument("--pairs", type=int, default=3, help="how often both servers are started")
    parser.add_argument("--rounds", type=int, default=5, help="of each pair")
    parser.add_argument("--seconds", type=float, default=2.0, help="at least, of each run")
    parser.add_argument("--json", type=Path, help="file for the ratios by round")
    options = parser.parse_args()
    require("wrk", "h2load")
    ensure_models()
    ratios = {}
    with other_tree(options.revision) as other:
        print(f"Requests/s of this tree / of {options.revision}: median (least-most), then of each pair")
        for name in options.workloads:
            workload = _COMPARED[name]
            pairs = [compare(workload, other, options.rounds, options.seconds) for _ in range(options.pairs)]
            ratios[name] = [each for pair in pairs for each in pair]
            spread = Spread.of(ratios[name])
            of_pairs = " ".join(f"{Spread.of(pair).median:.2f}" for pair in pairs)
            print(f"  {name:18} {spread.median:.2f} ({spread.least:.2f}-{spread.most:.2f})  {of_pairs}", flush=True)
    save(options.json, ratios)
    sys.exit(slower(ratios))


def slower(ratios: Mapping[str, Sequence[float]]) -> bool:
    """Is a workload's median below what noise explains?"""
    return any(Spread.of(each).median < LEAST for each in ratios.values())


def compare(workload: Workload, other: Path, rounds: int, seconds: float) -> list[float]:
    """By round, requests/s of this tree as a multiple of the other's; of one pair of servers."""
    form, path = _WAYS[workload.wire]
    bodies = [FORMS[form].write(workload.input, row) for row, _ in read_samples(workload.model)]
    ratios = []
    with ExitStack() as stack:
        ports = [stack.enter_context(_server(tree, workload.model)) for tree in (ROOT, other)]
        for number in range(rounds + 1):
            rates = [0.0, 0.0]
            for which in (0, 1) if number % 2 else (1, 0):
                url = f"http://127.0.0.1:{ports[which]}{path.format(workload.model)}"
                rates[which] = _rate(workload, url, bodies, max(seconds, workload.seconds))
            ratios.append(rates[0] / rates[1])
    return ratios[1:]  # the first one warmed both up


def _rate(workload: Workload, url: str, bodies: Sequence[Body], seconds: float) -> float:
    if workload.wire in ("grpc", "http2"):
        return h2load.closed_loop(url, bodies[0], workload.connections, seconds)
    run = wrk.closed_loop(url, bodies, workload.connections, seconds, traced=workload.traced)
    if run.failed:
        sys.exit(f"{workload.name}: {run.failed} requests failed")
    return run.rate


@contextmanager
def _server(tree: Path, model: str) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        repository.mkdir()
        (repository / model).symlink_to(saved_model(model).parent)
        settings = {"models": repository, "single_port": True, "variant_cache": Path(folder) / "variants"}
        with live_process(tree, **settings) as (port, _):
            yield port


if __name__ == "__main__":
    main()
