"""TFLite models behind a real server and the commands: all protocols, good files and bad ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from tensorflow.core.framework.tensor_pb2 import TensorProto
from typer.testing import CliRunner, Result

from app.cli import app
from app.codecs.protobuf.messages import message_class
from tests.runtimes import broken_tflite
from tests.support import savedmodels
from tests.support.processes import ServerProcess, free_port, serving
from tests.support.tensor_protos import encode_tensor
from tests.support.tflite.tflite_models import convert, converted, make_tflite, write
from tests.support.waiting import wait_until

SCALE = np.float32(3.0)


def one_row() -> bytes:
    """image [1, 4] of one row -> score [1, 2], as most public files have it."""
    weights = tf.constant(np.arange(8, dtype=np.float32).reshape(4, 2))
    return convert(lambda image: {"score": image @ weights}, tf.TensorSpec([1, 4], tf.float32, name="image"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`net` has a free batch, `row` has one row, `both` has two models that differ, the others cannot be loaded."""
    folder = tmp_path_factory.mktemp("tflite") / "models"
    make_tflite(savedmodels.make_image_net, folder / "net" / "1")
    write(one_row(), folder / "row" / "1")
    savedmodels.make_half_plus_two(folder / "both" / "1")
    (folder / "both" / "1" / "model.tflite").write_bytes(
        convert(lambda x: {"y": x * SCALE}, tf.TensorSpec([None], tf.float32, name="x"))
    )
    broken_tflite.make_crashing(folder / "crashing" / "1")
    broken_tflite.make_custom(folder / "custom" / "1")
    return folder


@pytest.fixture(scope="module")
def grpc_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(models: Path, grpc_port: int) -> Iterator[ServerProcess]:
    with serving(models, models.parent / "log", ready=False, grpc_port=grpc_port) as running:
        for name in ("net", "row", "both"):
            running.wait_for(f"/v2/models/{name}/ready", 200)
        yield running


def predict(server: ServerProcess, model: str, instances: Any) -> Any:
    reply = server.client.post(f"/v1/models/{model}:predict", json={"instances": instances})
    assert reply.status_code == 200, reply.text
    return reply.json()["predictions"]


def test_a_free_batch_is_shared_and_right(server: ServerProcess) -> None:
    images = np.random.default_rng(1).random([24, 8, 8], np.float32)
    runner = Interpreter(model_content=converted(savedmodels.make_image_net)).get_signature_runner()
    want = runner(image=images)["probabilities"]
    with ThreadPoolExecutor(8) as callers:
        got = list(callers.map(lambda image: predict(server, "net", [image.tolist()])[0], images))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    (version,) = server.client.get("/v1/models/net/batching").json()["versions"]
    assert [(each["batched"], each["proof"]) for each in version["signatures"]] == [(True, "probe")]


def test_one_row_of_the_file_answers_any_number_of_rows(server: ServerProcess) -> None:
    rows = np.random.default_rng(2).random([7, 4], np.float32)
    want = rows @ np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_allclose(predict(server, "row", rows.tolist()), want, rtol=1e-5)
    with ThreadPoolExecutor(7) as callers:
        got = list(callers.map(lambda row: predict(server, "row", [row.tolist()])[0], rows))
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_open_inference_answers(server: ServerProcess) -> None:
    body = {"inputs": [{"name": "image", "shape": [2, 4], "datatype": "FP32", "data": [1, 0, 0, 0, 0, 0, 0, 1]}]}
    reply = server.client.post("/v2/models/row/infer", json=body).json()
    assert [reply["outputs"][0][key] for key in ("name", "shape", "data")] == ["score", [2, 2], [0, 1, 6, 7]]
    described = server.client.get("/v2/models/row").json()
    assert described["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 4]}]


def test_grpc_answers(server: ServerProcess, grpc_port: int) -> None:
    request = message_class("tensorflow.serving.PredictRequest")()
    request.model_spec.name = "row"
    encode_tensor(np.array([[0, 1, 0, 0]], np.float32), request.inputs["image"], as_content=True)
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        answer = message_class("tensorflow.serving.PredictResponse").FromString(call(request.SerializeToString()))
    assert tf.make_ndarray(TensorProto.FromString(answer.outputs["score"].SerializeToString())).tolist() == [[2, 3]]


def test_metadata_and_status_are_those_of_a_model(server: ServerProcess) -> None:
    metadata = server.client.get("/v1/models/row/metadata").json()["metadata"]["signature_def"]["signature_def"]
    assert metadata["serving_default"]["inputs"]["image"]["dtype"] == "DT_FLOAT"
    (version,) = server.client.get("/v1/models/row").json()["model_version_status"]
    assert version["state"] == "AVAILABLE"


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("crashing", "LiteRT crashes with this file (SIGFPE) while it called signature 'serving_default' with zeros"),
        ("custom", "it needs a custom operation that LiteRT does not have: Erfinv"),
    ],
)
def test_a_file_that_cannot_be_served_says_why_and_ends_no_server(server: ServerProcess, model: str, text: str) -> None:
    def version() -> Any:
        return server.client.get(f"/v1/models/{model}").json()["model_version_status"][0]

    wait_until(lambda: version()["state"] == "END", f"{model} is still loaded")
    assert version()["status"]["error_message"].startswith(f"{model}/1 cannot be loaded: {text}")
    server.check_alive()


def test_the_saved_model_is_served_where_both_are(server: ServerProcess) -> None:
    assert predict(server, "both", [2.0]) == [3.0]


def test_prefer_tflite_model_takes_the_other(models: Path, tmp_path: Path) -> None:
    """And falls back to a SavedModel where there is no TFLite model."""
    savedmodels.make_half_plus_two(tmp_path / "models" / "plain" / "1")
    (tmp_path / "models" / "both").symlink_to(models / "both")
    with serving(tmp_path / "models", tmp_path / "log", runtime="litert") as server:
        assert predict(server, "both", [2.0]) == [6.0]
        assert predict(server, "plain", [2.0]) == [3.0]


# --- the commands ---


def ferry(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_predict_and_inspect_take_a_tflite_model(models: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.npy"
    np.save(rows, np.eye(4, dtype=np.float32)[:2])
    result = ferry("predict", models / "row", rows)
    assert json.loads(result.stdout) == {"predictions": [[0, 1], [2, 3]]}, result.stderr
    table = ferry("inspect", models / "row").stdout
    assert "image" in table
    assert "[?,4]" in table


def test_check_tells_of_good_and_bad_files(models: Path) -> None:
    quick = ferry("check", "--quick", models)
    assert quick.exit_code == 0, quick.output
    result = ferry("check", models)
    assert result.exit_code == 1
    assert "LiteRT crashes with this file (SIGFPE)" in result.output
    assert "a custom operation that LiteRT does not have: Erfinv" in result.output
