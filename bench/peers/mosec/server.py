"""mosec: its Rust front collects a batch, one worker process parses it, runs it and prints it."""

from __future__ import annotations

from typing import Any

import orjson
from mosec import Server, Worker

from bench.peers.saved_model import MAX_BATCH_SIZE, WIRE, Array, Signature


class Predictor(Worker):
    def __init__(self) -> None:
        self.signature = Signature()

    def deserialize(self, data: bytes) -> Array:
        if WIRE == "binary":
            return self.signature.row(data)
        return self.signature.array(orjson.loads(data)["instances"][0])

    def forward(self, data: list[Array]) -> list[Array]:
        return list(self.signature.run_rows(data))

    def serialize(self, data: Any) -> bytes:
        if WIRE == "binary":
            return data.tobytes()
        return orjson.dumps({"predictions": [data]}, option=orjson.OPT_SERIALIZE_NUMPY)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Predictor, num=1, max_batch_size=MAX_BATCH_SIZE, max_wait_time=3, timeout=60)
    server.run()
