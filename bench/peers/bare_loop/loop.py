"""The most rows a second that the signature as it is gives: batches made beforehand, of one length each."""

from __future__ import annotations

import itertools
import time

import numpy as np

from bench.peers.in_process import check, obey, samples
from bench.peers.saved_model import INPUT, Array, Signature, tf

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

#: The search for the best size goes over all of them this often, for the machine is not as fast at all times.
PASSES, SECONDS, LEAST_CALLS = 3, 0.4, 3


def batches(rows: list[Array], size: int) -> list[Array]:
    """At most eight, so that rows of mixed lengths stay in the mix; each is of equal rows, so nothing is padded."""
    step = max(1, len(rows) // 8)
    return [np.repeat(row[np.newaxis], size, 0) for row in rows[::step]]


def main() -> None:
    signature = Signature()
    rows, expected = (list(each) for each in zip(*samples(), strict=True))
    check([signature.run(row[np.newaxis])[0] for row in rows], expected)

    def calls(size: int, seconds: float, least: int = 1) -> list[float]:
        """Seconds that each call took."""
        made = itertools.cycle([{INPUT: tf.constant(batch)} for batch in batches(rows, size)])
        times: list[float] = []
        start = now = time.perf_counter()
        while now - start < seconds or len(times) < least:
            for output in signature.call(**next(made)).values():
                output.numpy()
            before, now = now, time.perf_counter()
            times.append(now - before)
        return times

    fastest = dict.fromkeys(SIZES, 0.0)
    for size in SIZES * PASSES:
        times = calls(size, SECONDS, LEAST_CALLS)
        fastest[size] = max(fastest[size], size * len(times) / sum(times))
    best = max(SIZES, key=lambda size: fastest[size])

    def measure(seconds: float, connections: int) -> tuple[int, list[float]]:  # noqa: ARG001 - it has no callers
        times = calls(best, seconds)
        return best * len(times), times

    obey(measure, f"best batch size {best}; a latency is that of a batch")


if __name__ == "__main__":
    main()
