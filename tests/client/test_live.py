"""The clients and the examples against the real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from ferry_client import AsyncClient, Client, InvalidRequest, ModelNotFound, ModelStatus, RequestTooLarge
from ferry_client.transport import ProtocolName

from tests.client.fakes import assert_same, strings
from tests.support.missing import skip_loudly
from tests.support.processes import ROOT, ServerProcess, serving
from tests.support.savedmodels import make_scalar, make_several_inputs, make_several_signatures
from tests.support.waiting import HANG_S

SAMPLES = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"]
IMAGES = np.array([sample["image"] for sample in SAMPLES], np.float32)
LABELS = [sample["label"] for sample in SAMPLES]
PROTOCOLS: tuple[ProtocolName, ...] = ("v2", "v1-json")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(ROOT / "models/digits/1", folder / "models/digits/1")
    make_several_inputs(folder / "models/several/1")
    make_several_signatures(folder / "models/signatures/1")
    make_scalar(folder / "models/scalar/1")
    with serving(folder / "models", folder / "log", max_body_bytes=1_000_000) as server:
        yield server


@pytest.fixture(params=PROTOCOLS)
def client(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(server.url, protocol=request.param) as client:
        yield client


def test_same_numbers_by_binary_and_by_json(server: ServerProcess) -> None:
    answers = []
    for protocol in PROTOCOLS:
        with Client(server.url, protocol=protocol) as client:
            answers.append(client.predict("digits", {"image": IMAGES})["probabilities"])
    binary, by_json = answers
    assert binary.dtype == np.float32
    assert binary.shape == (len(IMAGES), 10)
    assert by_json.dtype == np.float32
    # Not bit by bit: the images go into calls whose sizes follow from measured costs, and sums differ by these.
    np.testing.assert_allclose(by_json, binary, rtol=1e-5)
    assert np.mean(binary.argmax(axis=1) == LABELS) >= 0.97


def test_asyncio_gives_each_call_its_own_answer(server: ServerProcess, client: Client) -> None:
    async def main() -> list[int]:
        async with AsyncClient(server.url) as concurrent:
            replies = await asyncio.gather(*(concurrent.predict("digits", image[np.newaxis]) for image in IMAGES))
        return [int(reply["probabilities"].argmax()) for reply in replies]

    assert asyncio.run(main()) == client.predict("digits", IMAGES)["probabilities"].argmax(axis=1).tolist()


def test_plain_lists_scalars_and_strings(client: Client) -> None:
    assert client.predict("digits", [SAMPLES[0]["image"]])["probabilities"].argmax() == LABELS[0]
    outputs = client.predict("scalar", {"a": 2.5, "name": "hé\0"})
    assert_same(outputs["double"], np.array(5.0, np.float32))
    assert_same(outputs["greeting"], strings(["hello hé\0".encode()], ()))


def test_empty_batches(client: Client) -> None:
    nothing = np.empty(0, np.float32)
    assert_same(client.predict("signatures", nothing)["y"], nothing)


def test_empty_batches_of_rows_go_in_binary(server: ServerProcess) -> None:
    nothing = np.empty((0, 2), np.float32)
    with Client(server.url) as client:
        assert_same(client.predict("several", {"a": nothing, "b": nothing})["sum"], nothing)


def test_outputs_signatures_and_versions(client: Client) -> None:
    a, b = np.full((1, 2), 3, np.float32), np.full((1, 2), 4, np.float32)
    assert client.predict("several", {"a": a, "b": b}, outputs=["product"]).keys() == {"product"}
    doubled = client.predict("signatures", {"x": a[:, 0]}, signature="double", version=1)
    assert doubled["y"].tolist() == [6]
    words = strings([b"a", b"b"], (2,))
    assert client.predict("signatures", {"words": words}, signature="join")["text"].dtype == object


def test_what_is_served(client: Client) -> None:
    assert client.ready("digits")
    assert not client.ready("nowhere")
    assert not client.ready("digits", version=9)
    assert ModelStatus("digits", "1", True) in client.models()
    metadata = client.metadata("digits")
    assert metadata.versions == ("1",)
    assert metadata.inputs["image"].dtype == np.float32
    assert metadata.inputs["image"].shape == (None, 8, 8)
    assert metadata.outputs["probabilities"].shape == (None, 10)


def test_the_whole_server_is_ready(server: ServerProcess) -> None:
    with Client(server.url) as client:
        assert client.ready()


def test_mistakes_come_back_with_their_kind(client: Client) -> None:
    with pytest.raises(ModelNotFound) as unknown:
        client.predict("nowhere", {"x": IMAGES})
    assert unknown.value.status == 404
    with pytest.raises(InvalidRequest, match="image"):
        client.predict("digits", {"picture": IMAGES})
    with pytest.raises(InvalidRequest):
        client.predict("digits", {"image": IMAGES[:, :4]})
    with pytest.raises(RequestTooLarge):
        client.predict("digits", {"image": np.zeros((5000, 8, 8), np.float32)})


def run_example(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_example_in_python(server: ServerProcess) -> None:
    together, each, mistake = run_example(sys.executable, "examples/predict.py", server.url).splitlines()
    assert together == each
    assert float(together.split("%")[0]) >= 97
    assert re.match(r"InvalidRequest \(400\): .*picture", mistake)


def test_example_in_javascript(server: ServerProcess) -> None:
    if not shutil.which("node"):
        skip_loudly("NODE IS NOT INSTALLED: examples/predict.mjs WAS NOT RUN")
    lines = run_example("node", "examples/predict.mjs", server.url).splitlines()
    right = [int(count) for line in lines for count in re.findall(r"(\d+) of 64 digits are right", line)]
    assert [line.split(":")[0] for line in lines] == ["predictJson", "predictBinary"]
    assert right[0] == right[1] >= 0.97 * len(LABELS)


def test_example_with_curl(server: ServerProcess) -> None:
    if not shutil.which("curl"):
        skip_loudly("CURL IS NOT INSTALLED: examples/curl.sh WAS NOT RUN")
    rows, columns = map(json.loads, run_example("sh", "examples/curl.sh", server.url).splitlines())
    assert int(np.argmax(rows["predictions"][0])) == LABELS[0]
    assert columns["outputs"][0]["data"] == rows["predictions"][0]
