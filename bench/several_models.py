"""What several models cost: requests/s of one server, in turn.

    python -m bench.several_models [--rounds 5] [--seconds 2] [--many 100] [--json FILE]

The tiny MLP as JSON by 64 connections of wrk, with a `traceparent` and an `x-request-id` of each request's own: one
model, three in turn, and many, drawn by Zipf's law. All are the same SavedModel under other names. Ratios are of the
same round.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.models import ensure_models, saved_model
from bench.support import wrk
from bench.support.figures import save
from bench.support.forms import FORMS, Body
from bench.support.live_server import live_server
from bench.support.machine import require

_CONNECTIONS = 64

#: Own bodies, and turns of the many models.
_BODIES, _TURNS = 200, 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--many", type=int, default=100, help="models beside the three; 0 leaves them out")
    parser.add_argument("--json", type=Path, help="file for the figures by round")
    options = parser.parse_args()
    require("wrk")
    ensure_models()
    rates = measure(options.rounds, options.seconds, options.many)
    figures = {**rates, **ratios(rates)}
    for name, values in figures.items():
        print(f"  {name:16} median {statistics.median(values):9.2f}  ({min(values):.2f}-{max(values):.2f})")
    save(options.json, figures)


def ratios(rates: dict[str, list[float]]) -> dict[str, list[float]]:
    """By round."""
    others = (name for name in rates if name != "one")
    return {f"{name}_to_one": [a / b for a, b in zip(rates[name], rates["one"], strict=True)] for name in others}


def measure(rounds: int, seconds: float, many: int) -> dict[str, list[float]]:
    """Requests/s by round."""
    names = [f"model_{n}" for n in range(3)]
    crowd = [f"crowd_{n}" for n in range(many)]
    turns: dict[str, Sequence[str]] = {"one": names[:1], "three": names}
    if crowd:
        weights = [1 / (n + 1) for n in range(many)]
        turns["many"] = random.Random(1).choices(crowd, weights, k=_TURNS)
    bodies = own_bodies()
    rates: dict[str, list[float]] = {name: [] for name in turns}
    with server(names + crowd) as port:
        for number in range(rounds + 1):
            for name, models in turns.items():
                paths = [f"/v1/models/{model}:predict" for model in models]
                url = f"http://127.0.0.1:{port}/"
                run = wrk.closed_loop(url, bodies, _CONNECTIONS, seconds, paths=paths, traced=True)
                if run.failed:
                    sys.exit(f"{name}: {run.failed} requests failed")
                if number:  # the first round warms up
                    rates[name].append(run.rate)
    return rates


def own_bodies() -> list[Body]:
    rows = np.random.default_rng(1).random((_BODIES, 16), np.float32)
    return [FORMS["v1-json"].write("x", row) for row in rows]


@contextmanager
def server(names: Sequence[str]) -> Iterator[int]:
    """Ferry with the tiny MLP under each of the names."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        repository.mkdir()
        for name in names:
            (repository / name).symlink_to(saved_model("mlp").parent)
        with live_server(models=repository, grpc_port=0, variant_cache=Path(folder) / "variants") as port:
            yield port


if __name__ == "__main__":
    main()
