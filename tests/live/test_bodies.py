"""Every form of bodies against a real server: the shipped model, and one that echoes every type."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import numpy as np
import pytest

from tests.codecs.test_every_format import any_bits, bits
from tests.support.bodies import (
    JSON,
    MSGPACK,
    NPY,
    NPZ,
    PROTOBUF,
    WHOLE,
    as_json,
    as_msgpack,
    as_protobuf,
    image,
    npy,
    npz,
)
from tests.support.processes import ROOT, ServerProcess, serving
from tests.support.savedmodels import make_every_dtype

SAMPLE = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"][0]
DIGIT = np.array([SAMPLE["image"]], np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(ROOT / "models/digits/1", folder / "models/digits/1")
    make_every_dtype(folder / "models/every/1")
    with serving(folder / "models", folder / "log") as server:
        yield server


def post(server: ServerProcess, model: str, content: bytes, kind: str, accept: str) -> bytes:
    headers = {"content-type": kind, "accept": accept}
    reply = server.client.post(f"/v1/models/{model}:predict", content=content, headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (200, accept), reply.text
    return reply.content


def test_a_digit_is_the_same_digit_in_every_form(server: ServerProcess) -> None:
    forms = {
        JSON: as_json({"image": DIGIT}),
        NPY: npy(DIGIT),
        NPZ: npz({"image": DIGIT.astype(np.int16)}),
        MSGPACK: as_msgpack({"image": np.asfortranarray(DIGIT)}),
        PROTOBUF: as_protobuf({"image": DIGIT}),
        "image/png": image(DIGIT[0].astype(np.uint8)),
    }
    replies = {kind: post(server, "digits", content, kind, NPY) for kind, content in forms.items()}
    assert len(set(replies.values())) == 1
    probabilities = np.frombuffer(replies[JSON][-40:], np.float32)
    assert probabilities.argmax() == SAMPLE["label"]
    in_json = json.loads(post(server, "digits", forms["image/png"], "image/png", JSON))["predictions"][0]
    assert np.array(in_json, np.float32).tobytes() == probabilities.tobytes()


@pytest.mark.parametrize("sent", WHOLE)
@pytest.mark.parametrize("wanted", WHOLE)
def test_every_type_bit_for_bit(server: ServerProcess, sent: str, wanted: str) -> None:
    arrays = {{"float16": "half"}.get(name, name): array[:, 0] for name, array in any_bits().items()}
    outputs = WHOLE[wanted][1](post(server, "every", WHOLE[sent][0](arrays), sent, wanted))
    assert {name: bits(outputs[f"{name}_out"]) for name in arrays} == {
        name: bits(each) for name, each in arrays.items()
    }
