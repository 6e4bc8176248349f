"""The example in Ray Serve: its README's command on one node, asked over HTTP and by a handle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.missing import skip_loudly
from tests.support.processes import ROOT, free_port
from tests.support.waiting import HANG_S, wait_until

EXAMPLE = ROOT / "examples/ray_serve"
ENVIRONMENT = ROOT / ".venv-ray"
SAMPLES = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"]

#: Asks by a handle, from another process of the cluster, as another deployment would.
_ASK = """
import json, sys, numpy, ray
from ray import serve
ray.init(address="auto", log_to_driver=False)
images = numpy.array(json.load(sys.stdin), numpy.float32)
answer = serve.get_app_handle("ferry").predict.remote("digits", {"image": images}).result()
print("ANSWER", json.dumps(answer["probabilities"].tolist()))
"""


class RayCluster:
    """One node, with the application running."""

    def __init__(self, url: str, environment: dict[str, str]) -> None:
        self.environment = environment
        self.client = httpx.Client(base_url=url, timeout=HANG_S)

    def ready(self) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get("/readyz").status_code == 200
        return False

    def ask_by_handle(self, images: list[Any]) -> np.ndarray[Any, Any]:
        python = ENVIRONMENT / "bin/python"
        done = subprocess.run(
            [python, "-c", _ASK], input=json.dumps(images), env=self.environment, capture_output=True, text=True,
            timeout=HANG_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return np.array(json.loads(done.stdout.rpartition("ANSWER ")[2]))


def readme_command() -> list[str]:
    (command,) = re.findall(r"^FERRY_MODELS=models (\S*python .+)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    return str(command).split()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    if not (ENVIRONMENT / ".ray-installed").exists():
        skip_loudly(".venv-ray is missing: FERRY IN RAY SERVE IS NOT TRIED. Make it: make ray")
    # Ray's sockets lie in its folder: a short path.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        port = free_port()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("FERRY_", "RAY_"))},
            "FERRY_MODELS": "models", "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", "HOME": folder,
        }  # fmt: skip
        log = Path(folder) / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [*readme_command(), "--port", str(port)], cwd=ROOT, env=environment, stdout=output, stderr=output
            )
        try:
            found = RayCluster(f"http://127.0.0.1:{port}", environment)
            wait_until(lambda: process.poll() is not None or found.ready(), "Ray Serve is not ready")
            assert process.poll() is None, log.read_text()
            with closing(found.client):
                yield found
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(HANG_S)


def test_it_answers_as_the_model_does_over_http(cluster: RayCluster) -> None:
    images = [sample["image"] for sample in SAMPLES]
    reply = cluster.client.post("/v1/models/digits:predict", json={"instances": [{"image": image} for image in images]})
    assert reply.status_code == 200, reply.text
    found = np.array(reply.json()["predictions"])
    assert (found.argmax(1) == [sample["label"] for sample in SAMPLES]).mean() > 0.95
    binary = cluster.client.get("/v2/models/digits").json()
    assert binary["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 8, 8]}]
    wrong = cluster.client.post("/v1/models/digits:predict", json={"instances": [[1.0]]})
    assert wrong.status_code == 400
    assert "image" in wrong.json()["error"]


def test_a_handle_gets_the_same_answer(cluster: RayCluster) -> None:
    images = [sample["image"] for sample in SAMPLES[:5]]
    reply = cluster.client.post("/v1/models/digits:predict", json={"instances": [{"image": image} for image in images]})
    np.testing.assert_allclose(cluster.ask_by_handle(images), reply.json()["predictions"], rtol=1e-4, atol=1e-6)
