"""TensorFlow's C++ batch scheduler, the one inside TensorFlow Serving, under callers in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.peers.in_process import check, obey, samples
from bench.peers.saved_model import INPUT, MAX_BATCH_SIZE, OUTPUT, Array, Signature, stack, tf


def batched(signature: Signature, row: Array) -> Callable[[Any], Any]:
    """Takes and gives a batch; calls at the same time run as one."""

    @tf.nondifferentiable_batch_function(
        num_batch_threads=1, max_batch_size=MAX_BATCH_SIZE, batch_timeout_micros=0, max_enqueued_batches=1000
    )
    def run(batch: Any) -> Any:
        return signature.call(**{INPUT: batch})[OUTPUT]

    return tf.function(run, input_signature=[tf.TensorSpec([None, *row.shape], signature.dtype)])


def main() -> None:
    signature = Signature()
    rows, expected = (list(each) for each in zip(*samples(), strict=True))
    rows = list(stack(rows)) if rows[0].ndim == 1 else rows  # the scheduler joins rows of one shape only
    call = batched(signature, rows[0])
    inputs = [tf.constant(row[np.newaxis]) for row in rows]

    def callers(seconds: float, connections: int, answers: list[Array] | None = None) -> tuple[int, list[float]]:
        latencies: list[list[float]] = [[] for _ in range(connections)]

        def caller(mine: list[float], n: int) -> None:
            end = time.perf_counter() + seconds
            before = 0.0
            while before < end:
                before = time.perf_counter()
                answer = call(inputs[n % len(inputs)]).numpy()
                mine.append(time.perf_counter() - before)
                if answers is not None:
                    answers[n] = answer[0]
                    return

        threads = [threading.Thread(target=caller, args=(mine, n)) for n, mine in enumerate(latencies)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(map(len, latencies)), [each for mine in latencies for each in mine]

    answers: list[Array] = [np.empty(0)] * len(rows)
    callers(1.0, len(rows), answers)
    check(answers, expected)
    obey(callers, "")


if __name__ == "__main__":
    main()
