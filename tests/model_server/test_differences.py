"""What the page for those who come from TensorFlow Serving says of differences, where no other test tries it."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import ml_dtypes
import pytest

from app.codecs.protobuf.messages import message_class
from app.config.settings import Settings
from app.config.sources import load_settings
from app.instrumentation.counts import Counts
from app.instrumentation.tensorflow_metrics import TensorFlowMetrics
from app.model_server.options import DIFFERENCES, settings_of
from app.transports.rendered_pages import whole
from tests.model_server.test_drop_in import PROGRAM, call, config, model_server, replace, states
from tests.support.processes import ServerProcess, free_port, needs_ipv6
from tests.support.protocol_fakes import Client, echo_model
from tests.support.savedmodels import make_half_plus_two
from tests.support.waiting import HANG_S, wait_until

# --- numbers in JSON ---


@pytest.mark.parametrize(
    ("dtype", "number", "answer"),
    [
        ("float32", "3.4028235e38", "3.4028235e+38"),
        ("float32", "Infinity", "Infinity"),
        ("float32", "-Infinity", "-Infinity"),
        ("float32", "16777217", "16777216.0"),  # TensorFlow Serving: "without loss of precision"
        ("float32", "7", "7.0"),
        ("int8", "-128", "-128"),
        ("uint8", "255", "255"),
        ("uint32", "4294967295", "4294967295"),
        ("uint16", "65535", "65535"),
        ("float16", "0.5", "0.5"),
        (ml_dtypes.bfloat16, "0.5", "0.5"),
    ],
)
def test_a_number_that_fits_is_read(dtype: Any, number: str, answer: str) -> None:
    reply = Client(echo_model(dtype)).predict(f'{{"instances": [{number}]}}'.encode())
    assert (reply.status, reply.body.decode()) == (200, f'{{"predictions":[{answer}]}}')


@pytest.mark.parametrize("instances", ["[{}]", "[0, {}]"])
@pytest.mark.parametrize(
    ("dtype", "number", "text"),
    [
        # json_tensor.cc, IsLosslessDecimal: "Cannot convert JSON value: ... to float without loss of precision."
        ("float32", "3.5e38", "is out of the range of type: float"),
        ("float32", "-1e39", "is out of the range of type: float"),
        ("float16", "70000", "is out of the range of type: half"),
        # rapidjson: kParseErrorNumberTooBig
        ("float32", "1e400", "JSON Parse error: the number 1e400 is too large"),
        ("float64", "-1e400", "JSON Parse error: the number -1e400 is too large"),
        # json_tensor.cc: val.IsInt() alone, so these wrap there
        ("int8", "128", "is out of the range of type: int8"),
        ("uint8", "-1", "is out of the range of type: uint8"),
        ("int16", "40000", "is out of the range of type: int16"),
        # json_tensor.cc: TypeError
        ("int32", "2147483648", "is out of the range of type: int32"),
        ("int64", "9223372036854775808", "is out of the range of type: int64"),
        ("int32", "1.0", "Type: Number is not of expected type: int32"),
        ("float32", "true", "is not of expected type: float"),
        ("bool", "1", "Type: Number is not of expected type: bool"),
        ("float32", '"1"', "Type: String is not of expected type: float"),
        ("int32", '"1"', "Type: String is not of expected type: int32"),
    ],
)
def test_a_number_that_does_not_fit_is_rejected(dtype: str, number: str, text: str, instances: str) -> None:
    if number.strip('"') != number or number == "true":
        instances = "[{}]"
    reply = Client(echo_model(dtype)).predict(f'{{"instances": {instances.format(number)}}}'.encode())
    assert reply.status == 400
    assert text in reply.error


# --- the server ---


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 has a warm-up file that holds no requests: TensorFlow Serving would not load it."""
    folder = tmp_path_factory.mktemp("models")
    make_half_plus_two(folder / "half" / "1")
    extra = folder / "half" / "1" / "assets.extra"
    extra.mkdir()
    (extra / "tf_serving_warmup_requests").write_bytes(b"no record")
    return folder


def test_what_the_drop_in_does_not_do(models: Path, tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text(config(models, 1))
    flags = [f"--model_config_file={file}", "--model_config_file_poll_wait_seconds=1"]
    with model_server(tmp_path / "log", *flags) as (server, port):
        assert states(server) == {"1": "AVAILABLE"}, "a file of warm-up requests that cannot be read fails no load"
        assert "tf_serving_warmup_requests" not in server.log.read_text()

        empty = message_class("tensorflow.serving.PredictRequest")()
        for service, method in (("SessionService", "SessionRun"), ("ProfilerService", "Profile")):
            with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                call(port, service, method, empty, "PredictResponse")

        twin = f'config {{ name: "twin" base_path: "{models}/half" model_platform: "tensorflow" }}'
        replace(file, f"{config(models, 999)[:-1]} {twin} }}")
        server.wait_for("/v1/models/twin/metadata", 200)
        assert states(server) == {"1": "AVAILABLE"}, "what a policy wants is not there: what serves stays"
        reply = server.client.post("/v1/models/half:predict", json={"instances": [2.0]})
        assert reply.json() == {"predictions": [3.0]}


def test_ferrys_own_defaults_that_the_page_tells() -> None:
    settings = Settings(**DIFFERENCES)
    assert settings.host == "0.0.0.0"
    assert settings.max_body_bytes == 256 * 2**20
    assert (settings.drain_grace_s, settings.drain_timeout_s) == (3, 30)


def test_the_metrics_page_has_no_label_api_and_none_of_tensorflows_own() -> None:
    page = whole(TensorFlowMetrics(Counts()).render()).decode()
    assert "API=" not in page
    assert ":tensorflow:core:" not in page
    assert ":tensorflow:cc:" not in page


def test_a_flag_overrides_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_GRPC_PORT", "1")
    assert load_settings({}).grpc_port == 1
    assert load_settings(settings_of({"port": 2})).grpc_port == 2


@needs_ipv6
@pytest.mark.parametrize("frontends", ["0", "2"])
def test_http_and_grpc_listen_on_ipv6_and_ipv4(models: Path, tmp_path: Path, frontends: str) -> None:
    rest, port = free_port(), free_port()
    flags = [f"--rest_api_port={rest}", f"--port={port}", "--model_name=half", f"--model_base_path={models}/half"]
    server = ServerProcess(
        [*PROGRAM, *flags], {"FERRY_HOST": "::", "FERRY_FRONTENDS": frontends}, rest, tmp_path / "log"
    )
    try:
        wait_until(lambda: server.check_alive() or reaches("::1", rest), "HTTP over IPv6")
        assert reaches("127.0.0.1", rest)
        wait_until(lambda: server.check_alive() or reaches("127.0.0.1", port), "gRPC over IPv4")
        assert reaches("::1", port)
    finally:
        server.client.close()
        server.process.kill()
        server.process.wait(HANG_S)


def reaches(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), HANG_S):
        return True
    return False
