"""Texts of 8 to 256 tokens on a transformer: the gain from sharing a batch among different lengths.

Four arrangements of the same engine, in turn under the same closed loop:

- longest: all lengths share a batch in order of arrival, padded to its longest: all rows that wait, as elsewhere;
- tuned:   the same, but Ferry chooses how many rows: the longest of fewer rows is shorter;
- equal:   only equal lengths share a batch;
- buckets: Ferry's default.

Prints useful rows/s, rows in a batch, and the ratios of each round; fails if an answer differs by more
than 1e-5 from that of the SavedModel alone. Callers are in the process, so neither sockets nor JSON are measured.

Usage: python -m bench.mixed_lengths [--rounds 7] [--seconds 3] [--callers 128] [--width 32] [--layers 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from bench import models
from bench.support.cache import CACHE, ROOT

Array = np.ndarray[Any, Any]

SHORTEST, LONGEST, MEDIAN, SIGMA = 8, 256, 32, 0.8
TEXTS = 2000

ARRANGEMENTS: dict[str, dict[str, Any]] = {
    "longest": {"shape_buckets": [LONGEST], "batching_policy": "work_conserving"},
    "tuned": {"shape_buckets": [LONGEST]},
    "equal": {"pad_shapes": "never"},
    "buckets": {},
}


def texts() -> list[Array]:
    """One row of tokens each; lengths are log-normal."""
    random = np.random.default_rng(7)
    lengths = np.exp(random.normal(np.log(MEDIAN), SIGMA, TEXTS)).clip(SHORTEST, LONGEST).astype(int)
    return [random.integers(1, models.VOCABULARY, (1, length), np.int32) for length in lengths]


def model_folder(width: int, layers: int) -> Path:
    """A repository with the benchmark's transformer, of that size and with places for LONGEST tokens."""
    folder = CACHE / "mixed_lengths" / f"{width}-{layers}-{LONGEST}"
    if not (folder / "transformer" / "1" / "saved_model.pb").is_file():
        command = [sys.executable, "-m", "bench.mixed_lengths", "--width", str(width), "--layers", str(layers)]
        subprocess.run([*command, "--make", str(folder / "transformer" / "1")], cwd=ROOT, check=True)
    return folder


def make_model(path: Path, width: int, layers: int) -> None:
    import tensorflow as tf  # noqa: PLC0415 - only where a model is made

    models.TOKENS, models.WIDTH, models.LAYERS, models.HEADS = LONGEST, width, layers, max(1, width // 16)
    models.transformer(tf, path)


def answers_alone(path: Path, rows: Sequence[Array]) -> list[Array]:
    """What the SavedModel itself says to each row."""
    import tensorflow as tf  # noqa: PLC0415 - the engine has set it up by now

    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    return [signature(tokens=tf.constant(row))["logits"].numpy() for row in rows]


class Loop:
    """Callers that send their next text as soon as the last one is answered."""

    def __init__(self, model: Any, rows: Sequence[Array], alone: Sequence[Array], callers: int) -> None:
        self._model, self._rows, self._alone, self._callers = model, rows, alone, callers
        self._turns = count()
        self.furthest = 0.0
        self.batch_rows: list[int] = []

    async def rate(self, seconds: float) -> float:
        """Rows answered a second."""
        answered: list[tuple[int, Any]] = []
        start = time.perf_counter()
        await asyncio.gather(*[self._caller(start + seconds, answered) for _ in range(self._callers)])
        taken = time.perf_counter() - start
        for number, answer in answered:
            difference = np.abs(answer.outputs["logits"] - self._alone[number]).max()
            self.furthest = max(self.furthest, float(difference / np.abs(self._alone[number]).max()))
        self.batch_rows += [answer.timing.rows for _, answer in answered]
        return len(answered) / taken

    async def _caller(self, end: float, answered: list[tuple[int, Any]]) -> None:
        from app.core.inference import InferenceRequest  # noqa: PLC0415 - see main

        while time.perf_counter() < end:
            number = next(self._turns) % len(self._rows)
            answered.append((number, await self._model.infer(InferenceRequest({"tokens": self._rows[number]}))))

    @property
    def mean_batch(self) -> float:
        """Rows in a batch, over batches."""
        return len(self.batch_rows) / sum(1 / rows for rows in self.batch_rows)


async def measure(options: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, Loop]]:
    from app.config.settings import Settings  # noqa: PLC0415 - as above
    from app.core.burst import Burst  # noqa: PLC0415 - as above
    from app.core.events import ignore  # noqa: PLC0415 - as above
    from app.server.engine import Engine  # noqa: PLC0415 - see main

    folder, rows = model_folder(options.width, options.layers), texts()
    engines = {
        name: Engine(
            Settings(models=folder, execution_variant="plain", ready_when="tuned", **more), None, ignore, inf, Burst()
        )
        for name, more in ARRANGEMENTS.items()
    }
    loops = {}
    alone: list[Array] = []
    for name, engine in engines.items():
        await engine.start()
        await engine.repository.wait_until_available()
        alone = alone or answers_alone(folder / "transformer" / "1", rows)
        loops[name] = Loop(engine.repository.resolve("transformer"), rows, alone, options.callers)
    rates: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(options.rounds + 1):
        for name, loop in loops.items():
            rate = await loop.rate(options.seconds)
            if number:  # the first meets each shape for the first time
                rates[name].append(rate)
    for engine in engines.values():
        await engine.close(drained=True)
    return rates, loops


def report(rates: dict[str, list[float]], loops: dict[str, Loop]) -> Iterator[str]:
    for name, figures in rates.items():
        loop = loops[name]
        yield (
            f"  {name:8} median {statistics.median(figures):7.0f} useful rows/s  "
            f"({min(figures):.0f} .. {max(figures):.0f})  {loop.mean_batch:5.1f} rows in a batch  "
            f"furthest from alone {loop.furthest:.1e}"
        )
    for name in ("longest", "tuned", "equal"):
        ratios = ratio(rates, name)
        yield f"  buckets / {name:8} {statistics.median(ratios):.2f}x  ({min(ratios):.2f} .. {max(ratios):.2f})"


def ratio(rates: dict[str, list[float]], other: str) -> list[float]:
    return [a / b for a, b in zip(rates["buckets"], rates[other], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--callers", type=int, default=128)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the figures: ratios by round")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before anything imports TensorFlow
    if options.make:
        return make_model(options.make, options.width, options.layers)
    rates, loops = asyncio.run(measure(options))
    print(
        f"Texts of {SHORTEST} to {LONGEST} tokens, {options.callers} callers, transformer of {options.layers} layers "
        f"{options.width} wide, {options.rounds} rounds in turn of {options.seconds:g} s each"
    )
    print("\n".join(report(rates, loops)))
    if options.json:
        figures = {f"to_{name}": ratio(rates, name) for name in ("longest", "tuned", "equal")}
        options.json.write_text(json.dumps(figures))
    if max(loop.furthest for loop in loops.values()) > 1e-5:
        sys.exit("An answer is further than 1e-5 from the one alone")
    return None


if __name__ == "__main__":
    main()
