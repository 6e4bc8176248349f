"""LitServe: FastAPI in front, a worker process that batches behind a queue."""

from __future__ import annotations

from typing import Any

import litserve

from bench.peers.saved_model import MAX_BATCH_SIZE, PORT, Array, Signature


class Predictor(litserve.LitAPI):
    def setup(self, device: str) -> None:  # noqa: ARG002 - the signature of LitServe
        self.signature = Signature()

    def decode_request(self, request) -> Array:  # an annotation would make it a parameter of the URL
        return self.signature.array(request["instances"][0])

    def batch(self, inputs: list[Array]) -> list[Array]:
        return inputs

    def predict(self, inputs: list[Array]) -> Array:
        return self.signature.run_rows(inputs)

    def unbatch(self, output: Array) -> list[Array]:
        return list(output)

    def encode_response(self, output: Array) -> dict[str, Any]:
        return {"predictions": [output.tolist()]}


if __name__ == "__main__":
    api = Predictor(max_batch_size=MAX_BATCH_SIZE, batch_timeout=0.001)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60, fast_queue=True)
    server.run(
        host="127.0.0.1",
        port=PORT,
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
