"""Ferry in a Ray Serve deployment: each replica is an engine that batches, behind Ray's proxy and its autoscaler.

    FERRY_MODELS=models python examples/ray_serve/deployment.py [--port 8000]

Then http://localhost:8000 speaks TensorFlow Serving's REST and the Open Inference Protocol; other deployments call
`handle.predict.remote("digits", {"image": array})`. README.md tells where the figures below come from.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import numpy as np
from ray import serve
from ray.serve.config import HTTPOptions

from app.config.sources import load_settings
from app.core.errors import ModelNotReady
from app.core.inference import InferenceRequest
from app.server.http_app import HttpApp
from app.server.server import Server

#: Cores of a replica. Ray counts them and confines nobody to them, so the server is told, too.
CORES = 2

#: Requests that a replica has unanswered when one more should start: `ferry plan --json`, "ongoing_requests".
ONGOING = 24

#: Requests that Ray lets into a replica. Ray's default, 5, would be the largest batch.
MOST_ONGOING = 512


@serve.deployment(
    ray_actor_options={"num_cpus": CORES},
    max_ongoing_requests=MOST_ONGOING,
    autoscaling_config={"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": ONGOING},
    graceful_shutdown_timeout_s=60,
)
@serve.ingress()
class Ferry:
    """A replica. Its settings are FERRY_* of the environment, but for ports and threads."""

    def __init__(self) -> None:
        flags = {"host": "127.0.0.1", "grpc_port": 0, "batches_in_flight": CORES, "intra_op_threads": 1}
        self._server = Server(load_settings(flags))

    def __serve_build_asgi_app__(self) -> HttpApp:
        """Ray runs its lifespan, which starts the engine and drains it."""
        return HttpApp(self._server)

    async def check_health(self) -> None:
        """Ray replaces a replica for which this raises."""
        if reasons := self._server.dead():
            raise RuntimeError("; ".join(reasons))

    async def predict(self, model: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """For other deployments, without HTTP. Args: inputs: name -> array of shape [rows, ...]."""
        response = await (await self._loaded(model)).infer(InferenceRequest(inputs))
        return response.outputs

    async def _loaded(self, model: str) -> Any:
        """A replica that has just started may still load."""
        while True:
            try:
                return self._server.repository.resolve(model)
            except ModelNotReady:
                await asyncio.sleep(0.05)


ferry = Ferry.bind()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000, help="of Ray's proxy, on the loopback interface")
    options = parser.parse_args()
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=options.port))
    serve.run(ferry, name="ferry", route_prefix="/", blocking=True)


if __name__ == "__main__":
    main()
