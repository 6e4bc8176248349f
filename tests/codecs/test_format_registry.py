"""Which form a request has and which one its reply: the negotiation, over the whole application."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from app.codecs.format_registry import BODY_FORMATS, negotiate
from app.core.inference import STRING
from tests.support.bodies import JSON, MSGPACK, NPY, NPZ, PROTOBUF, as_msgpack, from_msgpack, image, npy
from tests.support.protocol_fakes import Client, FakeModel, echo_model, model, scope, scripted, specs

X = np.array([1, 2], np.float32)


def two_outputs() -> FakeModel:
    outputs = specs(y=("float32", (None,)), z=("float32", (None,)), text=("string", (None,)))
    text = np.array([b"a", b"b"], STRING)
    return model(specs(x=("float32", (None,))), outputs, lambda i: {"y": i["x"], "z": -i["x"], "text": text})


def client() -> Client:
    return Client(echo_model("float32", (None,)))


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
    ],
)
@pytest.mark.parametrize("accept", [None, "", "*/*", "application/json", "application/json, text/plain, */*"])
def test_what_tensorflow_servings_clients_send_is_json(content_type: str | None, accept: str | None) -> None:
    headers = {"content-type": content_type, "accept": accept}
    answer = client().predict({"instances": [1]}, {name: value for name, value in headers.items() if value is not None})
    assert (answer.status, answer.json()) == (200, {"predictions": [1.0]})


@pytest.mark.parametrize("content_type", ["application/octet-stream", "application/xml", "multipart/form-data", "x"])
def test_other_types_are_not_read(content_type: str) -> None:
    answer = client().predict({"instances": [1]}, {"content-type": content_type})
    assert answer.status == 415
    assert content_type in answer.error
    for each in BODY_FORMATS:
        assert each.media_types[0] in answer.error


@pytest.mark.parametrize(
    ("sent", "accept", "expected"),
    [
        (JSON, NPY, NPY),
        (JSON, "application/x-npz, */*;q=0.1", NPZ),
        (JSON, "application/x-msgpack", "application/x-msgpack"),
        (NPY, None, NPY),
        (NPY, "*/*", NPY),
        (NPY, "application/json", JSON),
        (NPY, "application/json, text/plain, */*", NPY),
        (MSGPACK, None, MSGPACK),
        ("application/x-msgpack", None, "application/x-msgpack"),
        ("application/vnd.msgpack", "application/*", "application/vnd.msgpack"),
        ("image/png", None, JSON),
        ("image/png", "*/*", JSON),
        ("image/jpg", NPY, NPY),
        (PROTOBUF, "application/json;q=0.2, application/x-npz;q=0.3", NPZ),
    ],
)
def test_the_reply_has_the_best_accepted_format(sent: str, accept: str | None, expected: str) -> None:
    formats = negotiate(sent.encode(), None if accept is None else accept.encode())
    assert formats.reply_type.decode() == expected


@pytest.mark.parametrize("accept", ["text/html", "image/png", "image/*", "application/json;q=0"])
def test_an_accept_without_a_possible_format_is_rejected_before_the_model_runs(accept: str) -> None:
    one = client()
    answer = one.predict({"instances": [1]}, {"accept": accept})
    assert answer.status == 406
    assert NPZ in answer.error
    assert not one.repository.models["m", 1].requests


def test_several_accept_lines_are_one() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    request = scope("POST", "/v1/models/m:predict")
    request["headers"] = [(b"accept", b"text/html"), (b"accept", NPY.encode()), (b"accept", b"image/png")]
    receive = scripted({"type": "http.request", "body": b'{"instances":[1]}'})
    asyncio.run(client().app(request, receive, send))
    assert (b"content-type", NPY.encode()) in sent[0]["headers"]


def test_classify_and_regress_know_json_only() -> None:
    inputs = specs(inputs=("string", (None,)))
    served = model(inputs, specs(outputs=("float32", (None,))), lambda i: {"outputs": np.ones(1, np.float32)})
    body = {"examples": [{}]}
    assert Client(served).post("/v1/models/m:regress", body, {"content-type": "text/plain"}).status == 200
    answer = Client(served).post("/v1/models/m:regress", body, {"content-type": NPY})
    assert (answer.status, answer.error) == (
        415,
        "Content-Type is 'application/x-npy'; expected one of application/json",
    )
    assert Client(served).post("/v1/models/m:classify", body, {"accept": NPZ}).status == 406


def test_one_output_for_npy() -> None:
    body = npy(X)
    answer = Client(two_outputs()).predict(body, {"content-type": NPY})
    assert answer.status == 406
    assert "choose one by ?output=NAME, or accept application/x-npz" in answer.error
    path = "/v1/models/m:predict"
    assert Client(two_outputs()).post(f"{path}?output=z", body, {"content-type": NPY}).body == npy(-X)
    answer = Client(two_outputs()).post(f"{path}?output=text", body, {"content-type": NPY})
    assert answer.status == 406
    assert "Output 'text' has strings" in answer.error
    answer = Client(two_outputs()).post(path, body, {"content-type": NPY, "accept": NPZ})
    assert answer.status == 406
    answer = Client(two_outputs()).post(path, body, {"content-type": NPY, "accept": MSGPACK})
    assert from_msgpack(answer.body)["text"].tolist() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("query", "outputs"),
    [
        ("", ["y", "z", "text"]),
        ("?output=z&output=y&output=z", ["y", "z"]),
        ("?output=y&output=z&output=text", ["y", "z", "text"]),
        ("?other=1&output=z", ["z"]),
    ],
)
def test_outputs_of_the_query(query: str, outputs: list[str]) -> None:
    served = two_outputs()
    answer = Client(served).post(f"/v1/models/m:predict{query}", as_msgpack({"x": X}), {"content-type": MSGPACK})
    assert list(from_msgpack(answer.body)) == outputs
    # All outputs are asked for by none, so that these requests share a batch.
    assert served.requests[0].outputs == (() if len(outputs) == 3 else tuple(outputs))


def test_outputs_of_the_query_for_json() -> None:
    answer = Client(two_outputs()).post("/v1/models/m:predict?output=z", {"instances": [1]})
    assert answer.json() == {"predictions": [-1.0]}
    answer = Client(two_outputs()).post("/v1/models/m:predict?output=w", {"instances": [1]})
    assert (answer.status, answer.error) == (
        400,
        "Signature 'serving_default' has no output 'w'; it has 'text', 'y', 'z'",
    )


def test_other_formats_than_json_carry_types_that_json_cannot() -> None:
    served = echo_model("complex64", (None,))
    array = np.array([1 + 2j], np.complex64)
    assert Client(served).predict(npy(array), {"content-type": NPY}).body == npy(array)
    answer = Client(served).predict(npy(array), {"content-type": NPY, "accept": JSON})
    assert (answer.status, answer.error) == (501, "Failed to write JSON value for tensor type: DT_COMPLEX64")


def test_quantized_numbers_are_for_protobuf_alone() -> None:
    quantized: Any = np.dtype([("qint8", np.int8)])
    served = model(specs(x=("float32", (None,))), specs(y=(quantized, (None,))), lambda i: {"y": i["x"]})
    for accept, status in {JSON: 400, NPY: 501, NPZ: 501, MSGPACK: 501}.items():
        answer = Client(served).predict({"instances": [1]}, {"accept": accept})
        assert answer.status == status
        assert not served.requests


def test_a_single_array_for_a_model_of_several_inputs_is_rejected() -> None:
    served = model(specs(a=("uint8", (None,)), b=("uint8", (None,))), specs(y=("uint8", (None,))), dict)
    for kind, body in {"image/png": image(np.zeros((2, 2), np.uint8)), NPY: npy(X)}.items():
        answer = Client(served).predict(body, {"content-type": kind})
        assert answer.status == 400
        assert "the inputs of signature 'serving_default' are 'a', 'b'; send .npz or JSON" in answer.error
