from __future__ import annotations

import asyncio
import gzip
import json

import numpy as np
import pytest

from app.core.inference import InferenceRequest, InferenceResponse
from app.protocols.open_inference.datatypes import DATATYPES
from app.protocols.open_inference.infer_call import InferCall, WantedOutput
from app.protocols.open_inference.rest_bodies import ContentReply, infer_reply
from app.protocols.open_inference.shared_memory import RegionSlice
from app.transports.http.replies import send_reply
from tests.support.open_inference_world import values_of

Y = np.array([[1, 2]], np.float32)


def reply(*wanted, call_id="", write=None, **outputs):
    response = InferenceResponse(outputs, "m", 3, "s")
    return infer_reply(InferCall(InferenceRequest({}), wanted, call_id), response, write)


def sent(content):
    messages = []

    async def send(message):
        messages.append(message)

    asyncio.run(send_reply(content, send))
    return messages


def test_json():
    made = reply(WantedOutput("y"), call_id="7", y=Y)
    assert json.loads(b"".join(made.pieces)) == {
        "model_name": "m", "model_version": "3", "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}],
    }  # fmt: skip
    assert made.headers == ((b"content-type", b"application/json"),)
    assert "id" not in json.loads(b"".join(reply(WantedOutput("y"), y=Y).pieces))


def test_binary_tensors_come_after_the_json():
    made = reply(WantedOutput("z", binary=True), WantedOutput("y"), WantedOutput("y", 1, True), y=Y, z=Y.T)
    head, *tail = made.pieces
    document = json.loads(head)
    assert [output.get("parameters") for output in document["outputs"]] == [
        {"binary_data_size": 8},
        None,
        {"binary_data_size": 14},
    ]
    assert b"".join(map(bytes, tail)) == Y.tobytes() + b"\x0a\0\0\x002.000000:1"
    assert dict(made.headers) == {
        b"content-type": b"application/octet-stream",
        b"inference-header-content-length": str(len(head)).encode(),
    }


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype(datatype):
    array = values_of(datatype)
    for binary in (False, True):
        output = json.loads(reply(WantedOutput("y", binary=binary), y=array).pieces[0])["outputs"][0]
        assert output["datatype"] == datatype
        assert output["shape"] == [2, 2]


def test_shared_memory():
    written = []
    region = RegionSlice("r", 8, 0)
    made = reply(WantedOutput("y", region=region), write=lambda part, raw: written.append((part, bytes(raw))), y=Y)
    assert written == [(region, Y.tobytes())]
    assert json.loads(made.pieces[0])["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 2]}]


def test_small_bodies_go_out_in_one_piece_and_large_ones_uncopied():
    small = sent(ContentReply([b"a", b"b"]))
    assert [message.get("body") for message in small] == [None, b"ab"]
    large = np.zeros(100_000, np.uint8)
    start, *pieces = sent(ContentReply([b"a", large.data]))
    assert (b"content-length", b"100001") in start["headers"]
    assert [(len(piece["body"]), piece.get("more_body", False)) for piece in pieces] == [(1, True), (100_000, False)]
    assert np.shares_memory(np.frombuffer(pieces[1]["body"], np.uint8), large)


def test_replies_are_compressed_from_a_kilobyte_on():
    large = ContentReply([b"a" * 1000, memoryview(b"b" * 1000)])
    made = asyncio.run(large.compressed("gzip"))
    assert gzip.decompress(bytes(made.pieces[0])) == b"a" * 1000 + b"b" * 1000
    assert (b"content-encoding", b"gzip") in made.headers
    assert asyncio.run(large.compressed(None)) is large
    small = ContentReply([b"a"])
    assert asyncio.run(small.compressed("gzip")) is small
