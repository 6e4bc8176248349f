"""One call with all cores beside several with a share of them each: `python -m bench.parallelism [--rounds 3]`.

Each arrangement is a process of its own, since TensorFlow keeps its threads as long as it runs; they take turns.
Rows/s, at 32 rows a call and at one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

import numpy as np

from app.loading.warm_up import tune
from app.runtime import RuntimeOptions, VariantOptions, create_runtime
from app.runtimes.tensorflow.parallelism import share_cores, usable_cores
from bench.models import ensure_models, read_samples, saved_model
from bench.peers.best_size import batches, timed
from bench.support.cache import ROOT
from bench.support.machine import machine_line

ROWS = (32, 1)


class Case(NamedTuple):
    """A model, its input's name, and the execution variant."""

    model: str
    input: str
    variant: str


CASES = (
    Case("mobilenet", "image", "plain"),
    Case("mobilenet", "image", "frozen"),
    Case("transformer", "tokens", "plain"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        rows, calls, threads = map(int, options.one[3:])
        print(measure(Case(*options.one[:3]), rows, calls, threads, options.seconds))
        return
    ensure_models()
    print(machine_line())
    cores = usable_cores()
    one, shared = (1, cores), share_cores(cores)
    print(f"rows/s: 1 call with {cores} threads; {shared[0]} calls with {shared[1]} each; how many times that is")
    for case in CASES:
        for rows in ROWS:
            rounds = [tuple(in_turn(case, rows, (one, shared), options.seconds)) for _ in range(options.rounds)]
            before, after = (median(each) for each in zip(*rounds, strict=True))
            gains = sorted(after / before for before, after in rounds)
            spread = f"{median(gains):.2f}x ({gains[0]:.2f}-{gains[-1]:.2f})"
            print(
                f"  {case.model:12} {case.variant:7} {rows:3} rows a call  {before:8.1f} {after:8.1f}  {spread}",
                flush=True,
            )


def in_turn(case: Case, rows: int, arrangements: Iterable[tuple[int, int]], seconds: float) -> Iterator[float]:
    for calls, threads in arrangements:
        command = [sys.executable, "-m", "bench.parallelism", "--seconds", str(seconds)]
        command += ["--one", *case, str(rows), str(calls), str(threads)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
        yield float(done.stdout.split()[-1])


def measure(case: Case, rows: int, calls: int, threads: int, seconds: float) -> float:
    """Rows/s of this many calls at the same time."""
    options = RuntimeOptions(threads, batches_in_flight=calls, variants=VariantOptions(case.variant))
    loaded = create_runtime("tensorflow", options).load(saved_model(case.model))
    tune(loaded, [rows], lambda *_: None)
    made = batches([np.asarray(row) for row, _ in read_samples(case.model)], rows)

    def call(batch: object) -> object:
        return loaded.run("serving_default", {case.input: np.asarray(batch)}, ())

    call(made[0])
    times = timed(call, made, seconds, callers=calls)
    return calls * rows * len(times) / sum(times)


if __name__ == "__main__":
    main()
