"""Latency of a served model while versions of another model load, as a multiple of that without.

    python -m bench.loading_beside [--rounds 5] [--seconds 3] [--connections 4] [--served digits] [--loaded mobilenet]

In each round the served model is called for some seconds twice, in alternating order: while nothing else happens, and
while new versions of another model are loaded one after the other. Prints p50 and p99 in milliseconds and, by round,
their ratios; exits with 1 if the median ratio of p99 is above 1.5. Needs `wrk`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.models import ensure_models, read_samples, saved_model
from bench.support import wrk
from bench.support.figures import Spread, ratio_by_round
from bench.support.forms import FORMS
from bench.support.live_server import is_tuned, live_server
from bench.support.workloads import WORKLOADS

#: Chosen: the p99 of a served model may grow by so much while another loads.
MOST = 1.5

#: Seconds between two versions. Chosen: most of the time one is being loaded.
_BETWEEN_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--served", default="mlp", help="a workload of bench.support.workloads")
    parser.add_argument("--loaded", default="transformer", help="a model of bench.models")
    options = parser.parse_args()
    if not wrk.is_installed():
        sys.exit("bench.loading_beside needs wrk (Debian: apt-get install wrk)")
    ensure_models()
    workload = WORKLOADS[options.served]
    bodies = [FORMS["v1-json"].write(workload.input, row) for row, _ in read_samples(workload.model)]
    found: dict[tuple[str, bool], dict[int, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        (models / "other").mkdir(parents=True)
        (models / workload.model).symlink_to(saved_model(workload.model).parent)
        settings = {"models": models, "grpc_port": 0, "poll_interval_s": 0.1, "variant_cache": Path(folder) / "cache"}
        with live_server(**settings) as port:
            versions = _Versions(models / "other", saved_model(options.loaded))
            for number in range(options.rounds + 1):
                for loading in (False, True) if number % 2 else (True, False):
                    while not is_tuned(port):
                        threading.Event().wait(0.1)
                    with versions.arriving(loading):
                        url = f"http://127.0.0.1:{port}/v1/models/{workload.model}:predict"
                        run = wrk.closed_loop(url, bodies, options.connections, options.seconds)
                    if run.failed:
                        sys.exit(f"{run.failed} requests failed")
                    if number:  # the first round warms up
                        found.setdefault(("p50", loading), {})[number] = run.p50_ms
                        found.setdefault(("p99", loading), {})[number] = run.p99_ms
    ratios = {}
    for figure in ("p50", "p99"):
        alone, beside = found[figure, False], found[figure, True]
        ratio = ratios[figure] = ratio_by_round(beside, alone)
        assert ratio is not None
        print(
            f"{figure}: {Spread.of(list(alone.values())).median:.2f} ms alone, "
            f"{Spread.of(list(beside.values())).median:.2f} ms beside loads, "
            f"{ratio.median:.2f} ({ratio.least:.2f}-{ratio.most:.2f}) times"
        )
    p99 = ratios["p99"]
    sys.exit(p99 is None or p99.median > MOST)


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
            self._number += 1
            (self._folder / str(self._number)).symlink_to(self._files)
            ended.wait(_BETWEEN_S)


if __name__ == "__main__":
    main()
