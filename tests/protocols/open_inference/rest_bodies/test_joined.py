"""Requests that are read and written together get what each gets alone."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from app.core.inference import InferenceResponse, ModelSignature
from app.protocols.open_inference.infer_call import InferCall
from app.protocols.open_inference.rest_bodies import infer_reply, read_joined, read_request, write_each
from tests.support.protocol_fakes import specs

SIGNATURE = ModelSignature(
    "serving_default",
    specs(x=("float32", (None, 2)), ids=("int64", (None,))),
    specs(y=("float32", (None, 2)), flag=("bool", (None, 1, 1))),
)

IDS = st.sampled_from([None, "", "a", 'with "quotes"', "],["])


def tensor(name: str, datatype: str, shape: list[Any], data: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def document(rows: int, x: list[Any], ids: list[Any], identity: str | None = None) -> dict[str, Any]:
    inputs = [tensor("ids", "INT64", [rows], ids), tensor("x", "FP32", [rows, 2], x)]
    return {"inputs": inputs} if identity is None else {"inputs": inputs, "id": identity}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.integers(1, 3))
    x = draw(st.lists(st.floats(-1e30, 1e30) | st.integers(-99, 99), min_size=2 * rows, max_size=2 * rows))
    ids = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=rows, max_size=rows))
    return document(rows, x, ids, draw(IDS))


def alone(body: bytes) -> InferCall:
    def no_region(_: object) -> bytes:
        raise AssertionError("it names no region")

    return read_request(body, memoryview(b""), {"serving_default": SIGNATURE}, no_region, lambda _: inf)


@given(st.lists(documents(), min_size=1, max_size=4), st.integers(0, 2**32))
def test_each_request_has_the_rows_and_the_reply_that_it_has_alone(asked: list[dict[str, Any]], seed: int) -> None:
    bodies = [orjson.dumps(each) for each in asked]
    read, calls = read_joined(bodies, SIGNATURE), [alone(body) for body in bodies]
    assert read is not None
    for name, array in read.inputs.items():
        expected = np.concatenate([call.request.inputs[name] for call in calls])
        np.testing.assert_array_equal(array, expected, strict=True)

    random, rows = np.random.default_rng(seed), sum(read.rows)
    outputs = {"y": random.random((rows, 2), np.float32), "flag": random.random((rows, 1, 1)) < 0.5}
    outputs["y"][random.random((rows, 2)) < 0.1] = np.nan
    written = write_each("m", 3, outputs, read.rows, read.ids)
    assert written is not None
    end = 0
    for call, count, text in zip(calls, read.rows, written, strict=True):
        own = {name: array[end : end + count] for name, array in outputs.items()}
        end += count
        reply = infer_reply(call, InferenceResponse(own, "m", 3, "serving_default"), lambda *_: None)
        assert text == b"".join(reply.pieces)


PLAIN = document(1, [1, 2], [3])


@pytest.mark.parametrize(
    "unusual",
    [
        [],
        "text",
        {},
        {"inputs": []},
        {"inputs": {}},
        {"inputs": [1]},
        {**PLAIN, "id": 1},
        {**PLAIN, "id": "ä"},
        {**PLAIN, "outputs": []},
        {**PLAIN, "parameters": {}},
        {"inputs": PLAIN["inputs"][:1]},
        {"inputs": [*PLAIN["inputs"], PLAIN["inputs"][0]]},
        {"inputs": [PLAIN["inputs"][0], {**PLAIN["inputs"][1], "parameters": {}}]},
        {"inputs": [PLAIN["inputs"][0], tensor("z", "FP32", [1, 2], [1, 2])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP64", [1, 2], [1, 2])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [1, 2], [[1, 2]])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [1, 2], [1, 2, 3])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [1, 2], "no")]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [1, 3], [1, 2, 3])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [1.0, 2], [1, 2])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [True, 2], [1, 2])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [], [1])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [0, 2], [])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [-1, -2], [1, 2])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [2, 2], [1, 2, 3, 4])]},
        {"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [1, 2], [1, None])]},
        {"inputs": [tensor("ids", "INT64", [1], [1.5]), PLAIN["inputs"][1]]},
        {"inputs": [tensor("ids", "INT64", [1], [[1]]), PLAIN["inputs"][1]]},
        {"inputs": [{**PLAIN["inputs"][0], "name": []}, PLAIN["inputs"][1]]},
    ],
    ids=str,
)
def test_what_is_unusual_begins_alone(unusual: Any) -> None:
    plain = orjson.dumps(PLAIN)
    assert read_joined([plain, plain], SIGNATURE) is not None
    assert read_joined([plain, orjson.dumps(unusual)], SIGNATURE) is None
    assert read_joined([orjson.dumps(unusual), plain], SIGNATURE) is None


def test_what_is_no_json_or_long_begins_alone() -> None:
    plain = orjson.dumps(PLAIN)
    assert read_joined([plain, b"{"], SIGNATURE) is None
    assert read_joined([plain, plain + b" " * 8192], SIGNATURE) is None


@pytest.mark.parametrize(
    "output",
    [np.array([b"a", b"b"], object), np.zeros((2, 0), np.float32), np.array(1.0, np.float32), np.zeros(3, np.float32)],
    ids=["strings", "empty", "a scalar", "other rows"],
)
def test_such_outputs_are_written_one_by_one(output: Any) -> None:
    assert write_each("m", 1, {"y": output}, [1, 1], ["", ""]) is None


def test_a_wrong_request_is_rejected_when_it_begins_alone() -> None:
    body = orjson.dumps({"inputs": [PLAIN["inputs"][0], tensor("x", "FP32", [1, 2], [1, "a"])]})
    assert read_joined([body], SIGNATURE) is None
    with pytest.raises(InvalidRequest, match="Input 'x'"):
        alone(body)
