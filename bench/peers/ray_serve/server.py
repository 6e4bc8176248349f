"""Ray Serve: a proxy process, a replica process that batches with @serve.batch."""

from __future__ import annotations

import signal
from typing import Any

import orjson
import ray
from ray import serve
from ray.serve.config import HTTPOptions
from starlette.requests import Request
from starlette.responses import Response

from bench.peers.saved_model import MAX_BATCH_SIZE, PORT, WIRE, Array, Signature


@serve.deployment(
    num_replicas=1,
    max_ongoing_requests=1024,
    health_check_period_s=86_400,  # it sleeps while others are measured
    health_check_timeout_s=86_400,
    ray_actor_options={"num_cpus": 1},
)
class Predictor:
    def __init__(self) -> None:
        self.signature = Signature()

    @serve.batch(max_batch_size=MAX_BATCH_SIZE, batch_wait_timeout_s=0.001)
    async def run(self, rows: list[Array]) -> list[Array]:
        return list(self.signature.run_rows(rows))

    async def __call__(self, request: Request) -> Any:
        body = await request.body()
        if WIRE == "binary":
            return Response((await self.run(self.signature.row(body))).tobytes())
        answer = await self.run(self.signature.array(orjson.loads(body)["instances"][0]))
        return Response(orjson.dumps({"predictions": [answer]}, option=orjson.OPT_SERIALIZE_NUMPY))


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="warning")
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=PORT))
    serve.run(Predictor.bind(), route_prefix="/")
    signal.pause()
