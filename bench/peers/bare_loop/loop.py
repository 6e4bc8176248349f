"""The most rows a second that the signature as it is gives: batches made beforehand, of one length each."""

from __future__ import annotations

import time

import numpy as np

from bench.peers.in_process import check, obey, samples
from bench.peers.saved_model import INPUT, Array, Signature, tf

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def batches(rows: list[Array], size: int) -> list[Array]:
    """At most eight, so that rows of mixed lengths stay in the mix; each is of equal rows, so nothing is padded."""
    step = max(1, len(rows) // 8)
    return [np.repeat(row[np.newaxis], size, 0) for row in rows[::step]]


def main() -> None:
    signature = Signature()
    rows, expected = (list(each) for each in zip(*samples(), strict=True))
    check([signature.run(row[None])[0] for row in rows], expected)

    def rate(size: int, seconds: float) -> tuple[int, list[float]]:
        made = [{INPUT: tf.constant(batch)} for batch in batches(rows, size)]
        done, times = 0, []
        start = now = time.perf_counter()
        while now - start < seconds:
            for inputs in made:
                for output in signature.call(**inputs).values():
                    output.numpy()
                before, now = now, time.perf_counter()
                times.append(now - before)
                done += size
        return done, times

    def measured(size: int) -> float:
        rate(size, 0.1)
        done, times = rate(size, 0.7)
        return done / sum(times)

    best = max(SIZES, key=measured)
    obey(lambda seconds, connections: rate(best, seconds), f"best batch size {best}")  # noqa: ARG005 - it has no callers


if __name__ == "__main__":
    main()
