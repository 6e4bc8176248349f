"""A model that was imported with `--accept jpeg`, served: bodies, batches, one broken file among good ones, labels."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.core.inference import string_array
from tests.importing.accept.sources import imported, mean_colours
from tests.support.bodies import image
from tests.support.processes import ServerProcess, serving

_RANDOM = np.random.default_rng(3)


def _photo(height: int, width: int) -> bytes:
    return image(_RANDOM.integers(0, 256, (height, width, 3)).astype(np.uint8), "JPEG")


#: Files of several sizes, and what the model's source answers.
FILES = [_photo(20 + number, 30) for number in range(24)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    imported(mean_colours(), folder / "models/photos/1", accept="jpeg", labels=str(folder / "labels.txt"))
    imported(mean_colours(height=None, width=None), folder / "models/sizes/1", accept="jpeg")
    with serving(folder / "models", folder / "log") as server:
        yield server


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    from app.importing.accept.jpeg import image_front  # noqa: PLC0415 - as the import does, in this process

    endpoint = mean_colours().endpoints[0]
    return np.asarray(endpoint.run(image_front(endpoint, "").run(string_array(FILES)))["means"])


def _b64(file: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(file).decode()}


def test_a_file_is_a_body(server: ServerProcess, expected: np.ndarray) -> None:
    reply = server.client.post("/v1/models/photos:predict", content=FILES[0], headers={"content-type": "image/jpeg"})
    np.testing.assert_allclose(reply.json()["predictions"][0]["means"], expected[0], rtol=1e-5)


def test_a_file_is_an_instance_in_base64(server: ServerProcess, expected: np.ndarray) -> None:
    body = {"instances": [_b64(file) for file in FILES]}
    rows = server.client.post("/v1/models/photos:predict", json=body).json()["predictions"]
    np.testing.assert_allclose([row["means"] for row in rows], expected, rtol=1e-5)
    named = {"instances": [{"photo_bytes": _b64(FILES[1])}]}
    (row,) = server.client.post("/v1/models/photos:predict", json=named).json()["predictions"]
    np.testing.assert_allclose(row["means"], expected[1], rtol=1e-5)


def test_the_models_own_input_is_a_signature(server: ServerProcess) -> None:
    body = {"signature_name": "tensors", "instances": np.full((1, 16, 24, 3), 51.0).tolist()}
    (row,) = server.client.post("/v1/models/photos:predict", json=body).json()["predictions"]
    np.testing.assert_allclose(row["means"], [0.2] * 3, rtol=1e-5)


def test_a_broken_file_fails_alone(server: ServerProcess, expected: np.ndarray) -> None:
    bodies = [json.dumps({"instances": [_b64(file)]}).encode() for file in FILES]
    bodies[5] = json.dumps({"instances": [_b64(FILES[5][: len(FILES[5]) // 9])]}).encode()
    bodies[17] = json.dumps({"instances": [_b64(b"no image")]}).encode()
    replies = asyncio.run(server.post_all_at_once("/v1/models/photos:predict", bodies, 2))
    for answers in replies:
        for caller, (status, body) in enumerate(answers):
            if caller in {5, 17}:
                assert status == 400, body
                continue
            assert status == 200, body
            np.testing.assert_allclose(json.loads(body)["predictions"][0]["means"], expected[caller], rtol=1e-5)


def test_images_of_several_sizes_are_answered_one_by_one(server: ServerProcess) -> None:
    bodies = [json.dumps({"instances": [_b64(file)]}).encode() for file in FILES]
    replies = asyncio.run(server.post_all_at_once("/v1/models/sizes:predict", bodies, 1))
    assert {status for answers in replies for status, _ in answers} == {200}


def test_requests_share_calls_by_the_graph(server: ServerProcess) -> None:
    log = Path(server.log).read_text()
    assert "Model photos version 1, signature 'serving_default': requests share calls, proven by graph" in log
    assert "Model photos version 1, signature 'tensors': requests share calls, proven by graph" in log


def test_v2_classifies_with_the_labels(server: ServerProcess) -> None:
    tensor = {"name": "photo", "shape": [1, 16, 24, 3], "datatype": "FP32", "data": [255.0, 0.0, 9.0] * 16 * 24}
    output = {"name": "means", "parameters": {"classification": 2}}
    document = {"inputs": [tensor], "outputs": [output], "parameters": {"signature_name": "tensors"}}
    reply = server.client.post("/v2/models/photos/infer", json=document).json()
    assert [text.split(":")[-1] for text in reply["outputs"][0]["data"]] == ["red", "blue"]
