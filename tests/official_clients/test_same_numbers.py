"""The same numbers by every protocol and every client, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.core.inference import Array
from tests.official_clients.conftest import Live
from tests.official_clients.requests import COMPLEX, REQUESTS, Request

AnswerOf = Callable[[str], Any]

#: How tensors travel: the case of a script that sends every request of its clients' types that way.
WAYS = (
    *("tensor_content", "typed_fields"),
    *("http_binary", "http_json", "http_aio", "grpc_raw", "grpc_aio"),
    *("kserve_binary", "kserve_json", "kserve_grpc_raw", "kserve_grpc_contents"),
)
#: What a client cannot send: bfloat16, and for KServe NaN in JSON.
NARROW = {"http_json", "kserve_binary", "kserve_json", "kserve_grpc_raw", "kserve_grpc_contents"}
NEVER_SENT = {("kserve_json", "not finite")}


def assert_same_bits(got: dict[str, Array], request: Request, reference: dict[str, Array]) -> None:
    assert got.keys() == request.outputs.keys()
    for name, output in request.outputs.items():
        expected = reference[name] if output is None else output
        assert got[name].shape == expected.shape, name
        if expected.dtype == object:
            assert got[name].tolist() == expected.tolist(), name
        else:
            assert got[name].dtype == expected.dtype, name
            assert got[name].tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("way", WAYS)
def test_every_client_gets_the_same_bits(all_answers: AnswerOf, way: str) -> None:
    answers, reference = all_answers(way), all_answers("tensor_content")
    narrow = {name for name, request in REQUESTS.items() if way in NARROW and "bfloat16" in request.inputs}
    assert answers.keys() - COMPLEX.keys() == {*REQUESTS} - narrow - {name for one, name in NEVER_SENT if one == way}
    for name in answers:
        assert_same_bits(answers[name], {**REQUESTS, **COMPLEX}[name], reference[name])


def rest_json(array: Array) -> Any:
    cells = np.array([value.decode() for value in array.reshape(-1)], object) if array.dtype == object else array
    return cells.reshape(array.shape).tolist()


def rest_array(value: Any, like: Array) -> Array:
    if like.dtype == object:
        flat = np.array(value, object).reshape(-1)
        return np.array([text.encode() for text in flat], object).reshape(np.shape(value))
    return np.array(value, like.dtype)


@pytest.mark.parametrize("name", [name for name in REQUESTS if not name.startswith("no rows")])
def test_tensorflow_serving_rest_gives_the_same_bits(live: Live, all_answers: AnswerOf, name: str) -> None:
    """Text that reads back as the same value loses no bit. JSON's lists cannot say the shape of no rows."""
    request, reference = REQUESTS[name], all_answers("tensor_content")[name]
    inputs = {each: rest_json(array) for each, array in request.inputs.items()}
    path = f"/v1/models/{request.model}:predict"
    reply = live.server.client.post(path, content=json.dumps({"inputs": inputs}))
    assert reply.status_code == 200, reply.text
    outputs = json.loads(reply.text)["outputs"]
    outputs = outputs if len(request.outputs) > 1 else {next(iter(request.outputs)): outputs}
    got = {each: rest_array(value, reference[each]) for each, value in outputs.items()}
    assert_same_bits(got, request, reference)
