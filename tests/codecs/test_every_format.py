"""What holds for every form of predict bodies: the same numbers, and no bytes that break the server."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.codecs.format_registry import BODY_FORMATS
from app.codecs.protobuf.tensor_protos import ENCODING_BY_DTYPE
from app.core.inference import STRING, Array
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
    from_npz,
    image,
    npy,
    npz,
)
from tests.support.protocol_fakes import Answer, Client, FakeModel, echo_model, model, specs

DTYPES = {("string" if dtype == STRING else dtype.name): dtype for dtype in ENCODING_BY_DTYPE if not dtype.names}
NUMBERS = {name: dtype for name, dtype in DTYPES.items() if dtype != STRING}


def every_dtype() -> FakeModel:
    """Answers each of its inputs, one of each type, as `<type>_out`."""
    inputs = specs(**{name: ("string" if dtype == STRING else dtype, (None, 2)) for name, dtype in DTYPES.items()})
    outputs = {f"{name}_out": spec for name, spec in inputs.items()}
    return model(inputs, outputs, lambda arrays: {f"{name}_out": array for name, array in arrays.items()})


def any_bits(seed: int = 7, rows: int = 3) -> dict[str, Array]:
    """NaNs of every kind, infinities, denormals and extremes among them."""
    random = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for name, dtype in DTYPES.items():
        if dtype == STRING:
            arrays[name] = np.empty((rows, 2), STRING)
            arrays[name].reshape(-1)[:] = [random.bytes(int(size)) for size in random.integers(0, 9, 2 * rows)]
        elif dtype == np.bool_:
            arrays[name] = random.integers(0, 2, (rows, 2)).astype(bool)
        else:
            arrays[name] = np.frombuffer(random.bytes(2 * rows * dtype.itemsize), dtype).reshape(rows, 2)
    return arrays


def bits(array: Array) -> Any:
    return array.tolist() if array.dtype == STRING else (array.shape, array.tobytes())


def post(client: Client, content: bytes, kind: str, accept: str | None = None, query: str = "") -> Answer:
    headers = {"content-type": kind} | ({} if accept is None else {"accept": accept})
    return client.post(f"/v1/models/m:predict{query}", content, headers)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sent", WHOLE)
@pytest.mark.parametrize("wanted", WHOLE)
def test_every_type_bit_for_bit(sent: str, wanted: str, seed: int) -> None:
    arrays = any_bits(seed)
    answer = post(Client(every_dtype()), WHOLE[sent][0](arrays), sent, wanted)
    assert (answer.status, answer.headers["content-type"]) == (200, wanted)
    outputs = WHOLE[wanted][1](answer.body)
    assert outputs.keys() == {f"{name}_out" for name in DTYPES}
    for name, array in arrays.items():
        assert outputs[f"{name}_out"].dtype == array.dtype
        assert bits(outputs[f"{name}_out"]) == bits(array)


@pytest.mark.parametrize("sent", [*WHOLE, NPZ])
@pytest.mark.parametrize("rows", [0, 1, 4])
def test_every_number_bit_for_bit_in_npz(sent: str, rows: int) -> None:
    arrays = any_bits(rows=rows)
    arrays["string"][:] = b"text"
    content = npz({**arrays, "string": arrays["string"].astype("S4")}) if sent == NPZ else WHOLE[sent][0](arrays)
    query = "?" + "&".join(f"output={name}_out" for name in NUMBERS)
    client = Client(every_dtype())
    answer = post(client, content, sent, NPZ, query)
    assert answer.status == 200, answer.body
    outputs = from_npz(answer.body)
    assert outputs.keys() == {f"{name}_out" for name in NUMBERS}
    for name in NUMBERS:
        assert bits(outputs[f"{name}_out"]) == bits(arrays[name])
    assert client.repository.models["m", 1].requests[0].inputs["string"].tolist() == arrays["string"].tolist()


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_bit_for_bit_in_npy(name: str) -> None:
    array = any_bits()[name]
    answer = post(Client(echo_model(DTYPES[name], (None, 2))), npy(array), NPY)
    assert (answer.status, answer.headers["content-type"]) == (200, NPY)
    back = np.load(io.BytesIO(answer.body), allow_pickle=False)
    assert back.dtype == (array.dtype if name != "bfloat16" else np.dtype("V2"))  # as numpy.save and load have it
    assert bits(back) == bits(array)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "uint64", "int8", "bool"])
def test_json_computes_on_the_same_numbers(dtype: str) -> None:
    array = np.array([[0.0, 1.0], [3.0, 100.0]]).astype(DTYPES[dtype])
    served = echo_model(DTYPES[dtype], (None, 2))
    for kind, content in {
        JSON: as_json({"x": array}),
        NPY: npy(array),
        NPZ: npz({"x": array}),
        MSGPACK: as_msgpack({"x": array}),
        PROTOBUF: as_protobuf({"x": array}),
    }.items():
        answer = post(Client(served), content, kind, JSON)
        assert answer.json() == {"outputs": array.tolist()}, kind
    for request in served.requests:
        assert bits(request.inputs["x"]) == bits(array)
        assert request.inputs["x"].dtype == array.dtype


# --- no bytes break the server ---

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
GOOD = {
    JSON: as_json({"x": np.ones((1, 4, 4, 3))}),
    NPY: npy(np.ones((1, 4, 4, 3), np.float32)),
    NPZ: npz({"x": np.ones((1, 4, 4, 3), np.float32)}),
    MSGPACK: as_msgpack({"x": np.ones((1, 4, 4, 3), np.float32)}),
    PROTOBUF: as_protobuf({"x": np.ones((1, 4, 4, 3), np.float32)}),
    "image/png": image(PIXELS),
    "image/jpeg": image(PIXELS, "JPEG"),
}
SERVED = {
    "pixels": echo_model("float32", (None, 4, 4, 3)),
    "free": echo_model("uint8", (None, None, None, None)),
    "text": echo_model("string", (None,)),
    "every": every_dtype(),
    "unknown": echo_model("float32", None),
}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good body with some bytes changed, cut, repeated or put in; now and then any bytes at all."""
    kind = draw(st.sampled_from(list(GOOD)))
    body = bytearray(GOOD[kind])
    if draw(st.integers(0, 9)) == 0:
        return kind, draw(st.binary(max_size=300))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(["change", "cut", "drop", "put in"])):
            case "change":
                body[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del body[place:]
            case "drop":
                del body[place : place + draw(st.integers(1, 8))]
            case _:
                body[place:place] = draw(st.binary(max_size=8))
    return kind, bytes(body)


@given(damaged(), st.sampled_from(list(SERVED)), st.sampled_from([None, JSON, NPY, NPZ, MSGPACK, PROTOBUF]))
@example((NPY, b"\x93NUMPY\x01\x00\xff\xff"), "pixels", None)
@example((NPZ, b"PK\x05\x06" + bytes(18)), "pixels", None)
@example((MSGPACK, b"\xdd\xff\xff\xff\xff" * 600), "pixels", None)
def test_no_bytes_break_the_server(case: tuple[str, bytes], name: str, accept: str | None) -> None:
    kind, body = case
    served = SERVED[name]
    answer = post(Client(served), body, kind, accept)
    served.requests.clear()
    assert answer.status in (200, 400, 406, 413, 501)
    if answer.status != 200:
        assert answer.error


def test_the_good_bodies_are_good() -> None:
    for kind, body in GOOD.items():
        assert post(Client(SERVED["pixels"]), body, kind).status == 200, kind


def test_every_registered_format_is_covered_here() -> None:
    assert [each.media_types[0] for each in BODY_FORMATS if each.reply] == [JSON, NPY, NPZ, MSGPACK, PROTOBUF]
    assert {each.media_types[0] for each in BODY_FORMATS} == GOOD.keys()


def test_all_formats_reject_a_wrong_shape_with_the_same_text() -> None:
    wrong = np.ones((1, 5, 4, 3), np.float32)
    for kind, content in {
        JSON: as_json({"x": wrong}),
        NPY: npy(wrong),
        NPZ: npz({"x": wrong}),
        MSGPACK: as_msgpack({"x": wrong}),
        PROTOBUF: as_protobuf({"x": wrong}),
    }.items():
        answer = post(Client(SERVED["pixels"]), content, kind)
        assert (answer.status, answer.error) == (400, "Input 'x' has shape [1,5,4,3]; expected [?,4,4,3]"), kind


def test_unknown_names_are_rejected() -> None:
    one = np.ones((1, 4, 4, 3), np.float32)
    for kind, content in {
        NPZ: npz({"arr_0": one}),
        PROTOBUF: as_protobuf({"arr_0": one}),
    }.items():
        answer = post(Client(SERVED["pixels"]), content, kind)
        assert answer.status == 400
        assert "missing 'x'; unknown 'arr_0'; expected 'x'" in answer.error
    answer = post(Client(SERVED["pixels"]), as_msgpack({"arr_0": one}), MSGPACK)
    assert (answer.status, answer.error) == (400, "Missing named input: x in 'inputs' object.")
