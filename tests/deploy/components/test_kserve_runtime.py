"""What KServe starts by k8s/components/kserve, started here: it answers over V1 and V2."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.deploy.manifests import ROOT
from tests.support.processes import ServerProcess, free_port

_PROGRAM = {"ferry-model-server": [sys.executable, "-m", "app.model_server"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    manifest = (ROOT / "k8s" / "components" / "kserve" / "servingruntime.yaml").read_text()
    (container,) = yaml.safe_load(manifest)["spec"]["containers"]
    (program,) = container["command"]
    rest, grpc = free_port(), free_port()
    arguments = " ".join(container["args"])
    for name, value in (
        ("{{.Name}}", "digits"),
        ("/mnt/models", f"{ROOT}/models/digits"),
        ("8080", rest),
        ("9000", grpc),
    ):
        arguments = arguments.replace(name, str(value))
    log = tmp_path_factory.mktemp("kserve") / "log"
    running = ServerProcess([*_PROGRAM[program], *arguments.split()], {"FERRY_HOST": "127.0.0.1"}, rest, log)
    try:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            running.wait_for(container[probe]["httpGet"]["path"], 200)
        yield running
    finally:
        running.client.close()
        running.process.kill()
        running.process.wait()


def test_it_answers_over_v1_and_v2_alike(server: ServerProcess) -> None:
    image = [[float(row * column) for column in range(8)] for row in range(8)]
    v1 = server.client.post("/v1/models/digits:predict", json={"instances": [image]}).json()
    tensor = {
        "name": "image",
        "datatype": "FP32",
        "shape": [1, 8, 8],
        "data": [value for row in image for value in row],
    }
    v2 = server.client.post("/v2/models/digits/infer", json={"inputs": [tensor]}).json()
    assert v2["outputs"][0]["data"] == pytest.approx(v1["predictions"][0])


def test_it_is_ready_over_v2_and_shows_metrics_where_the_annotation_says(server: ServerProcess) -> None:
    assert server.client.get("/v2/health/ready").status_code == 200
    assert "ferry_ready 1.0" in server.client.get("/metrics").text
