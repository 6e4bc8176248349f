"""BentoML: its own ASGI server with an adaptive batcher. Lists where rows differ in length: it joins batches itself."""

from __future__ import annotations

from typing import Any

import bentoml
import numpy as np

from bench.peers.saved_model import INPUT, MAX_BATCH_SIZE, Signature

Rows: Any = list[list[int]] if INPUT == "tokens" else np.ndarray


@bentoml.service(
    workers=1,
    traffic={"timeout": 60, "max_concurrency": 4096},
    logging={"access": {"enabled": False}},
    metrics={"enabled": False},
)
class Predictor:
    def __init__(self) -> None:
        self.signature = Signature()

    @bentoml.api(batchable=True, batch_dim=0, max_batch_size=MAX_BATCH_SIZE, max_latency_ms=10_000)
    def predict(self, instances: Rows) -> np.ndarray:
        return self.signature.run_rows([self.signature.array(row) for row in instances])
