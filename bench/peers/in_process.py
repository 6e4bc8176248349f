"""Messages between the benchmark and a loop that runs in a process of its own, without HTTP.

The loop writes {"ready": true, "about": ...} when its answers were checked. Then, for each line
{"seconds": s, "connections": n} that it reads, it runs and writes the figures of a closed loop.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from app.bench.open_loop import percentile
from bench.support.forms import Array, agrees

#: Requests done and how long each took, in seconds; from seconds to run and callers.
Measure = Callable[[float, int], tuple[int, list[float]]]


def samples() -> list[tuple[Array, Array]]:
    with np.load(os.environ["BENCH_SAMPLES"]) as file:
        return [(file[f"input_{n}"], file[f"output_{n}"]) for n in range(len(file.files) // 2)]


def check(answers: list[Array], expected: list[Array]) -> None:
    """Exits where an answer is wrong: figures of wrong answers are worth nothing."""
    for answer, right in zip(answers, expected, strict=True):
        if not agrees(answer, right):
            sys.exit(f"wrong answer: {answer.reshape(-1)[:4]} instead of {right.reshape(-1)[:4]}")


def obey(measure: Measure, about: str) -> None:
    """Until standard input ends."""
    _write({"ready": True, "about": about})
    for line in sys.stdin:
        wanted = json.loads(line)
        start = time.perf_counter()
        requests, latencies = measure(wanted["seconds"], wanted["connections"])
        seconds = time.perf_counter() - start
        ascending = sorted(latencies)
        quantiles = {f"p{round(q * 100)}_ms": 1e3 * percentile(ascending, q) for q in (0.5, 0.9, 0.99)}
        _write({"requests": requests, "seconds": seconds, "failed": 0, **quantiles, "max_ms": 1e3 * ascending[-1]})


def _write(document: dict[str, Any]) -> None:
    print("RESULT " + json.dumps(document), flush=True)
