"""Pipelines over real models: every protocol, swaps of versions under load, and the end under load."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import ARRANGEMENTS, ServerProcess, serving
from tests.support.waiting import wait_until

CASCADE = """
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}, when: small.score < 2}
outputs: {y: [big.y, small.y], score: small.score}
"""

MIXED = """
steps:
  small: {model: small, inputs: {x: x}}
  attend: {model: attention, inputs: {queries: small.y, keys: keys}}
outputs: {y: attend.y}
"""

EACH = """
steps:
  boxes: {model: detect, inputs: {x: image}}
  read: {model: small, inputs: {x: boxes.boxes}, each: x}
outputs: {y: read.y}
"""


def save(folder: Path, body: Callable[[Any], Any]) -> None:
    module = tf.Module()
    module.answer = tf.function(body, input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.answer})


def save_attention(folder: Path) -> None:
    """queries [batch, 2], keys [batch, 2]: each query adds up all keys. Their rows need not be equally many."""
    specs = [tf.TensorSpec([None, 2], tf.float32, name=name) for name in ("queries", "keys")]
    module = tf.Module()
    module.answer = tf.function(
        lambda queries, keys: {"y": tf.matmul(tf.matmul(queries, keys, transpose_b=True), keys)}, input_signature=specs
    )
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.answer})


def put(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(text)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save(folder / "small" / "1", lambda x: {"score": tf.reduce_sum(x, 1), "y": x + 1})
    save(folder / "big" / "1", lambda x: {"y": x * 10})
    save(folder / "detect" / "1", lambda x: {"boxes": tf.stack([x, x + 1, x + 2], 1)})
    put(folder / "cascade" / "3", CASCADE)
    put(folder / "each" / "1", EACH)
    return folder


def predict(server: ServerProcess, model: str, rows: list[Any]) -> httpx.Response:
    return server.client.post(f"/v1/models/{model}:predict", json={"instances": rows})


@pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_a_pipeline_is_a_model_to_every_protocol(models: Path, tmp_path: Path, frontends: int) -> None:
    with serving(models, tmp_path / "log", frontends=frontends) as server:
        # 1. TensorFlow Serving's REST.
        answer = predict(server, "cascade", [[0, 1], [2, 2]])
        assert answer.json() == {"predictions": [{"y": [0, 10], "score": 1}, {"y": [3, 3], "score": 4}]}
        steps = [each.split(";")[0].strip() for each in answer.headers["server-timing"].split(",")]
        assert [each for each in steps if each in {"small", "big"}] == ["small", "big"]
        assert predict(server, "each", [[0, 1]]).json() == {"predictions": [[[1, 2], [2, 3], [3, 4]]]}

        # 2. Metadata, statuses, and Open Inference.
        metadata = server.client.get("/v1/models/cascade/metadata").json()
        assert set(metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]["outputs"]) == {
            "y",
            "score",
        }
        about = server.client.get("/v2/models/cascade").json()
        assert about["versions"] == ["3"]
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0, 1]}
        outputs = server.client.post("/v2/models/cascade/infer", json={"inputs": [tensor]}).json()["outputs"]
        assert {each["name"]: each["data"] for each in outputs} == {"y": [0, 10], "score": [1]}

        # 3. What is wrong is told.
        wrong = predict(server, "cascade", [[1, 2, 3]])
        assert (wrong.status_code, wrong.json()["error"]) == (400, "Input 'x' has shape [1,3]; expected [?,2]")
        assert server.client.get("/docs").status_code == server.client.get("/openapi.json").status_code == 200


def _with_keys(rows: Any) -> Any:
    return [{"x": row, "keys": [2 * each for each in row]} for row in rows.tolist()]


def test_a_step_that_mixes_rows_is_called_with_those_of_one_request(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    save_attention(folder / "attention" / "1")
    shutil.copytree(models / "small", folder / "small")
    put(folder / "mixed" / "1", MIXED)
    sent = [np.random.default_rng(n).integers(0, 5, (n % 4 + 1, 2)).astype(np.float32) for n in range(32)]
    with serving(folder, tmp_path / "log") as server, ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda rows: predict(server, "mixed", _with_keys(rows)), sent))
        refused = server.client.post(
            "/v1/models/mixed:predict", json={"inputs": {"x": [[1, 2]] * 3, "keys": [[1, 2]] * 2}}
        )
    for rows, answer in zip(sent, answers, strict=True):
        keys = 2 * rows
        np.testing.assert_allclose(answer.json()["predictions"], (rows + 1) @ keys.T @ keys)
    assert (refused.status_code, "equally many rows" in refused.json()["error"]) == (400, True), refused.text


def test_a_pipeline_comes_after_its_models_and_follows_them(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    put(folder / "cascade" / "3", CASCADE)
    put(folder / "wrong" / "1", CASCADE.replace("small.score", "small.scores"))
    shutil.copytree(models / "small", folder / "small")
    with serving(folder, tmp_path / "log", poll_interval_s=0.1) as server:
        rejected = predict(server, "cascade", [[0, 1]])
        assert rejected.status_code == 503
        assert "waits for the model big" in rejected.json()["error"]
        shutil.copytree(models / "big" / "1", tmp_path / "new")
        (folder / "big").mkdir()
        (tmp_path / "new").rename(folder / "big" / "1")
        wait_until(lambda: predict(server, "cascade", [[0, 1]]).status_code == 200)
        problems = json.dumps(server.client.get("/health").json()["problems"])
        assert "step 'big'" in problems
        assert "no output 'scores', only 'score', 'y'" in problems


@pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_no_request_fails_while_versions_are_swapped_nor_at_the_end(
    models: Path, tmp_path: Path, frontends: int
) -> None:
    folder = tmp_path / "models"
    shutil.copytree(models, folder)
    settings = {"poll_interval_s": 0.05, "settle_s": 0.0, "drain_grace_s": 1.0, "frontends": frontends}
    with serving(folder, tmp_path / "log", **settings) as server:
        answers: list[list[float]] = []
        failures: list[str] = []
        ended = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=str(server.client.base_url), timeout=60) as client:
                while not ended.is_set():
                    try:
                        answer = client.post("/v1/models/cascade:predict", json={"instances": [[0, 1], [2, 2]]})
                    except httpx.TransportError as error:
                        failures.append(repr(error))
                        return
                    if answer.status_code == 200:
                        answers.append([row["y"][1] for row in answer.json()["predictions"]])
                    else:
                        failures.append(answer.text)

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        for version in range(2, 6):
            save(tmp_path / str(version), lambda x, factor=10 * version: {"y": x * factor})
            (tmp_path / str(version)).rename(folder / "big" / str(version))
            wait_until(lambda wanted=10.0 * version: bool(answers) and answers[-1][0] == wanted)
        state = server.client.get("/v1/models/big/versions/1").json()["model_version_status"][0]["state"]
        assert state in {"END", "UNLOADING"}

        # The end, while the last request of each client is under way.
        ended.set()
        server.terminate()
        for client in clients:
            client.join()
        assert not failures
        assert {row[1] for row in answers} == {3.0}
        assert {row[0] for row in answers} == {10.0, 20.0, 30.0, 40.0, 50.0}
        assert np.isfinite(answers).all()
        assert server.wait() == 0
