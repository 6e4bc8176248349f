"""The real program, started as TensorFlow Serving is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from app.codecs.protobuf.messages import message_class
from tests.repository.fakes import BROKEN, add
from tests.support import tf1_savedmodels
from tests.support.forks.programs import run_program
from tests.support.processes import ARRANGEMENTS, ROOT, ServerProcess, free_port
from tests.support.savedmodels import make_half_plus_two, make_several_inputs
from tests.support.waiting import HANG_S, wait_until

PROGRAM = [sys.executable, "-m", "app.model_server"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for version in ("00000123", "124"):
        make_half_plus_two(folder / "half" / version)
    return folder


@contextmanager
def model_server(log: Path, *flags: str, **variables: str) -> Iterator[tuple[ServerProcess, int]]:
    """The server with its gRPC port; it takes requests when its models are loaded, not before."""
    rest, port = free_port(), free_port()
    command = [*PROGRAM, f"--rest_api_port={rest}", f"--port={port}", *flags]
    server = ServerProcess(command, {"FERRY_HOST": "127.0.0.1", **variables}, rest, log)
    try:
        server.wait_for("/livez", 200)
        yield server, port
    finally:
        server.client.close()
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(HANG_S)


def config(models: Path, *versions: int, **labels: int) -> str:
    policy = " ".join(f"versions: {version}" for version in versions)
    pairs = " ".join(f'version_labels {{ key: "{label}" value: {version} }}' for label, version in labels.items())
    return f"""model_config_list {{ config {{
        name: "half" base_path: "{models}/half" model_platform: "tensorflow"
        model_version_policy {{ specific {{ {policy} }} }} {pairs}
    }} }}"""


def call(port: int, service: str, method: str, request: Any, reply: str) -> Any:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        path = f"/tensorflow.serving.{service}/{method}"
        decode = message_class(f"tensorflow.serving.{reply}").FromString
        return channel.unary_unary(path, lambda message: message.SerializeToString(), decode)(request, timeout=HANG_S)


def reload_of(name: str, base_path: str) -> Any:
    model = {"name": name, "base_path": base_path, "model_platform": "tensorflow"}
    return message_class("tensorflow.serving.ReloadConfigRequest")(config={"model_config_list": {"config": [model]}})


def replace(file: Path, text: str) -> None:
    """At once: the server must not find the file half written."""
    (file.parent / "new").write_text(text)
    (file.parent / "new").replace(file)


def states(server: ServerProcess, model: str = "half") -> dict[str, str]:
    found = server.client.get(f"/v1/models/{model}").json().get("model_version_status", [])
    return {status["version"]: status["state"] for status in found}


@pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def test_versions_labels_and_changes_of_the_file(models: Path, tmp_path: Path, frontends: int) -> None:
    file, monitoring = tmp_path / "models.config", tmp_path / "monitoring.config"
    file.write_text(config(models, 123, 124, stable=123, canary=124))
    monitoring.write_text('prometheus_config { enable: true path: "/monitoring/prometheus/metrics" }')
    flags = [
        f"--model_config_file={file}", "--model_config_file_poll_wait_seconds", "1", "--rest_api_enable_cors_support",
        f"--monitoring_config_file={monitoring}", "--enable_profiler=false",
    ]  # fmt: skip
    more = {"FERRY_FRONTENDS": str(frontends), "FERRY_MODEL_CONTROL": "explicit"}
    with model_server(tmp_path / "log", *flags, **more) as (server, port):
        assert states(server) == {"123": "AVAILABLE", "124": "AVAILABLE"}, "it waits for its models"

        reply = server.client.post("/v1/models/half/labels/stable:predict", json={"instances": [1, 2]})
        assert reply.json() == {"predictions": [2.5, 3.0]}
        assert reply.headers["access-control-allow-origin"] == "*"
        reply = server.client.post("/v1/models/half/labels/beta:predict", json={"instances": [1, 2]})
        assert (reply.status_code, reply.json()) == (400, {"error": "Unrecognized servable version label: beta"})

        request = message_class("tensorflow.serving.PredictRequest")()
        request.model_spec.name, request.model_spec.version_label = "half", "stable"
        request.inputs["x"].CopyFrom(
            message_class("tensorflow.TensorProto")(dtype=1, tensor_shape={"dim": [{"size": 1}]}, float_val=[4.0])
        )
        answer = call(port, "PredictionService", "Predict", request, "PredictResponse")
        assert list(answer.outputs["y"].float_val) == [4.0], "typed fields, as its clients read them"
        assert answer.model_spec.version.value == 123

        page = server.client.get("/monitoring/prometheus/metrics").text
        assert ':tensorflow:serving:request_count{model_name="half",status="OK"} 2' in page

        replace(file, config(models, 124, stable=124))
        wait_until(lambda: states(server)["123"] == "END", "the file's new list is in effect")
        answer = call(port, "PredictionService", "Predict", request, "PredictResponse")
        assert answer.model_spec.version.value == 124

        replace(file, "nonsense")
        wait_until(lambda: "The list of models is not in effect" in server.log.read_text(), "a bad file is said")
        assert states(server)["124"] == "AVAILABLE"

        file.write_text("")
        wait_until(lambda: "holds no model_config_list" in server.log.read_text(), "an empty file is said")
        reload = message_class("tensorflow.serving.ReloadConfigRequest")()
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            call(port, "ModelService", "HandleReloadConfigRequest", reload, "ReloadConfigResponse")
        elsewhere = reload_of("half", "/etc")
        with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
            call(port, "ModelService", "HandleReloadConfigRequest", elsewhere, "ReloadConfigResponse")
        beside = reload_of("half", f"{models}/half")
        call(port, "ModelService", "HandleReloadConfigRequest", beside, "ReloadConfigResponse")
        assert states(server)["124"] == "AVAILABLE"
        assert server.client.get("/readyz").status_code == 200
        assert "Warning: --enable_profiler does nothing here: " in server.log.read_text()
        server.terminate()
        assert server.wait() == 0


@pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def test_models_of_tensorflow_1_by_a_file_that_is_read_again(tmp_path: Path, frontends: int) -> None:
    """As testGoodModelConfig and testModelConfigReload in TensorFlow Serving's tensorflow_model_server_test.py."""
    models = {
        "half_plus_two": (tf1_savedmodels.make_half_plus_two, "00000123", 3.0),
        "half_plus_three": (tf1_savedmodels.make_half_plus_three_of_0_12, "00000123", 4.0),
        "counter": (tf1_savedmodels.make_counter, "1", 0.0),
    }
    for name, (make, version, _) in models.items():
        make(tmp_path / name / version)

    def listed(*names: str) -> str:
        configs = [f'config: {{ name: "{name}", base_path: "{tmp_path / name}" }}' for name in names]
        return f"model_config_list: {{ {', '.join(configs)} }}"

    def predict(model: str, signature: str = "", output: str = "", **inputs: float) -> float:
        request = message_class("tensorflow.serving.PredictRequest")(output_filter=[output] if output else [])
        request.model_spec.name, request.model_spec.signature_name = model, signature
        for name, value in inputs.items():
            shape = {"dim": [{"size": 1}] if name == "x" else []}
            tensor = message_class("tensorflow.TensorProto")(dtype=1, tensor_shape=shape, float_val=[value])
            request.inputs[name].CopyFrom(tensor)
        answer = call(port, "PredictionService", "Predict", request, "PredictResponse")
        assert answer.model_spec.version.value == int(models[model][1])
        (tensor,) = answer.outputs.values()
        return float(tensor.float_val[0])

    file = tmp_path / "models.config"
    file.write_text(listed("half_plus_two", "half_plus_three"))
    flags = [f"--model_config_file={file}", "--model_config_file_poll_wait_seconds=1"]
    with model_server(tmp_path / "log", *flags, FERRY_FRONTENDS=str(frontends)) as (server, port):
        for name in ("half_plus_two", "half_plus_three"):
            assert predict(name, x=2.0) == predict(name, output="y", x=2.0) == models[name][2]
        reply = server.client.post("/v1/models/half_plus_two:predict", json={"instances": [[1.0], [2.0]]})
        assert reply.json() == {"predictions": [[2.5], [3.0]]}
        examples = {"signature_name": "regress_x_to_y", "examples": [{"x": 2.0}]}
        assert server.client.post("/v1/models/half_plus_three:regress", json=examples).json() == {"results": [4.0]}

        replace(file, listed("half_plus_two", "counter"))
        wait_until(lambda: states(server, "half_plus_three")["123"] == "END", "the new list is in effect")
        wait_until(lambda: states(server, "counter").get("1") == "AVAILABLE", "the added model is loaded")
        assert predict("half_plus_two", x=2.0) == 3.0
        assert [predict("counter", "incr_counter") for _ in range(2)] == [1, 2]
        assert predict("counter", "incr_counter_by", delta=3.5) == predict("counter", "get_counter") == 5.5
        body = {"signature_name": "incr_counter_by", "inputs": {"delta": 1.0}}
        assert server.client.post("/v1/models/counter:predict", json=body).json() == {"outputs": 6.5}
        assert [predict("counter", name) for name in ("reset_counter", "get_counter")] == [0, 0]


def test_a_shape_beyond_the_signature_runs_alone_if_the_graph_runs_it(tmp_path: Path) -> None:
    make_several_inputs(tmp_path / "several" / "1")
    flags = ["--model_name=several", f"--model_base_path={tmp_path / 'several'}"]
    with model_server(tmp_path / "log", *flags) as (server, _):
        b = [[1, 2], [3, 4], [5, 6]]
        reply = server.client.post("/v1/models/several:predict", json={"inputs": {"a": [1, 2], "b": b}})
        assert reply.json()["outputs"]["sum"] == [[2, 4], [4, 6], [6, 8]]
        reply = server.client.post("/v1/models/several:predict", json={"inputs": {"a": [1, 2, 3], "b": b}})
        assert (reply.status_code, reply.json()) == (400, {"error": "Incompatible shapes: [3] vs. [3,2]"})


def test_started_as_the_image_is(models: Path, tmp_path: Path) -> None:
    variables = {"MODEL_NAME": "half", "MODEL_BASE_PATH": str(models)}
    socket = tmp_path / "socket"
    with model_server(tmp_path / "log", f"--grpc_socket_path={socket}", **variables) as (server, port):
        assert states(server) == {"124": "AVAILABLE"}
        assert socket.exists()
        reload = message_class("tensorflow.serving.ReloadConfigRequest")(config={"model_config_list": {}})
        with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
            call(port, "ModelService", "HandleReloadConfigRequest", reload, "ReloadConfigResponse")
        assert states(server) == {"124": "AVAILABLE"}, "strangers do not unload models"


def test_without_a_rest_port_only_grpc_is_served(models: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [*PROGRAM, f"--port={port}", "--model_name=half", f"--model_base_path={models}/half"]
    server = ServerProcess(command, {"FERRY_HOST": "127.0.0.1"}, port, tmp_path / "log")
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(HANG_S)
        request = message_class("tensorflow.serving.PredictRequest")(model_spec={"name": "missing"})
        with pytest.raises(grpc.RpcError, match="Servable not found for request: Latest\\(missing\\)"):
            call(port, "PredictionService", "Predict", request, "PredictResponse")
        assert "Uvicorn running" not in server.log.read_text()
        server.terminate()
        assert server.wait() == 0
    finally:
        server.client.close()
        server.process.kill()
        server.process.wait(HANG_S)


def failed_start(*flags: str) -> str:
    """What the program wrote to standard error; it must end by itself, and not with 0."""
    command = [*PROGRAM, f"--port={free_port()}", f"--rest_api_port={free_port()}", *flags]
    environment = {**os.environ, "FERRY_HOST": "127.0.0.1"}
    ended = run_program(*command[1:], environment=environment)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_file_that_is_no_list_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("model_config_list: config {")
    text = failed_start(f"--model_config_file={tmp_path}/bad")
    assert text.startswith("Failed to start server. Error: ")
    assert "Error parsing text-format tensorflow.serving.ModelServerConfig" in text


def test_a_model_that_does_not_load_ends_the_start(tmp_path: Path) -> None:
    add(tmp_path, "m", 1, BROKEN)
    text = failed_start(f"--model_base_path={tmp_path}/m", "--model_name=m")
    assert "Failed to start server. Error: Model m version 1 is not loaded: saved_model.pb, of 6 bytes, is cut" in text


def test_it_works_through_a_link(tmp_path: Path) -> None:
    program, alias = tmp_path / "ferry-model-server", tmp_path / "tensorflow_model_server"
    program.write_text(f"#!{sys.executable}\nfrom app.model_server.__main__ import main\nmain()\n")
    program.chmod(0o755)
    subprocess.run([program, "install-alias", tmp_path], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    ended = subprocess.run(
        [alias, "--nonsense"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (2, "tensorflow_model_server: unknown argument: --nonsense\n")
