"""The most rows a second that the signature as it is gives: batches made beforehand, of one length each."""

from __future__ import annotations

import numpy as np

from bench.peers.best_size import run_best_size
from bench.peers.in_process import check, samples
from bench.peers.saved_model import INPUT, Signature, tf
from bench.support.forms import Array

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def main() -> None:
    signature = Signature()
    rows, expected = (list(each) for each in zip(*samples(), strict=True))
    check([signature.run(row[np.newaxis])[0] for row in rows], expected)

    def call(batch: Array) -> None:
        for output in signature.call(**{INPUT: tf.constant(batch)}).values():
            output.numpy()

    run_best_size(call, rows, SIZES, lambda _: "plain")


if __name__ == "__main__":
    main()
