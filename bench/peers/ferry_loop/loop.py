"""The most rows a second that Ferry's variants give: its runtime, without batcher, HTTP and JSON.

One call at a time with all cores; with --as-served as many as Ferry has under way, with a share of the cores each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.time_budget import TimeBudget
from app.loading.warm_up import tune
from app.runtime import RuntimeOptions, VariantOptions, create_runtime
from bench.peers.best_size import run_best_size
from bench.peers.in_process import check, samples
from bench.support.forms import Array

SIGNATURE = "serving_default"


def main() -> None:
    settings = Settings()
    variants = VariantOptions(
        settings.execution_variant,
        cache=Path(os.environ["BENCH_VARIANTS"]),  # where the server wrote what it chose
    )
    calls = 0 if "--as-served" in sys.argv else 1
    runtime = create_runtime(settings.runtime, RuntimeOptions(batches_in_flight=calls, variants=variants))
    model = runtime.load(Path(os.environ["BENCH_SAVED_MODEL"]))
    sizes = BatchSizes.of(settings.max_batch_size).allowed
    choices = tune(model, sizes, lambda *_: None, TimeBudget(settings.load_budget_s))
    chosen = {choice.batch_size: choice.variant for choice in choices if choice.signature == SIGNATURE}
    name, output = os.environ["BENCH_INPUT"], os.environ["BENCH_OUTPUT"]

    def call(batch: Array) -> Array:
        return model.run(SIGNATURE, {name: batch}, ())[output]

    rows, expected = (list(each) for each in zip(*samples(), strict=True))
    check([call(row[np.newaxis])[0] for row in rows], expected)
    run_best_size(call, rows, sizes, lambda size: chosen[size], runtime.batches_in_flight)


if __name__ == "__main__":
    main()
