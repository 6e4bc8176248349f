from __future__ import annotations

from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest
from app.protocols.open_inference.binary_tensors import encode
from app.protocols.open_inference.datatypes import DATATYPES, datatype_of
from app.protocols.open_inference.grpc_messages import parameters_of, read_message
from tests.support.open_inference_world import AB, message, sum_model, values_of
from tests.support.protocol_fakes import echo_model

SUMS = sum_model().signatures
FIELDS = {
    "BOOL": "bool", "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "int64", "UINT8": "uint",
    "UINT16": "uint", "UINT32": "uint", "UINT64": "uint64", "FP32": "fp32", "FP64": "fp64", "BYTES": "bytes",
}  # fmt: skip


def echo(datatype):
    return echo_model("string" if datatype == "BYTES" else values_of(datatype).dtype, (None, 2)).signatures


def tensor(name, array, **more):
    return {"name": name, "datatype": datatype_of(array.dtype), "shape": array.shape, **more}


def typed(name, array, **more):
    datatype = datatype_of(array.dtype)
    return tensor(name, array, contents={FIELDS[datatype] + "_contents": array.reshape(-1).tolist()}, **more)


def request(*inputs, raw=(), **more):
    return message("ModelInferRequest", model_name="m", inputs=inputs, raw_input_contents=raw, **more)


def read(wire, signatures=SUMS, memory=None):
    return read_message(wire, signatures, memory, lambda timeout_s: 100 + timeout_s)


def same(inputs, expected):
    assert inputs.keys() == expected.keys()
    for name, array in expected.items():
        assert inputs[name].dtype == array.dtype
        assert inputs[name].shape == array.shape
        assert inputs[name].tolist() == array.tolist()


def test_raw_and_typed_say_the_same():
    raw = [AB["b"].tobytes(), AB["a"].tobytes()]
    same(read(request(tensor("b", AB["b"]), tensor("a", AB["a"]), raw=raw)).request.inputs, AB)
    same(read(request(typed("a", AB["a"]), typed("b", AB["b"]))).request.inputs, AB)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype(datatype):
    x = values_of(datatype)
    same(read(request(tensor("x", x), raw=[bytes(encode(x))]), echo(datatype)).request.inputs, {"x": x})
    if datatype in FIELDS:
        same(read(request(typed("x", x)), echo(datatype)).request.inputs, {"x": x})


def test_what_else_a_request_says():
    parameters = {"timeout": {"int64_param": 2_000_000}, "free": {"double_param": 0.5}}
    call = read(
        request(typed("a", AB["a"]), typed("b", AB["b"]), id="7", outputs=[{"name": "sum"}], parameters=parameters)
    )
    assert call.id == "7"
    assert call.request.deadline_s == 102
    assert call.request.outputs == ("sum",)


def test_parameters():
    values = {"a": {"bool_param": False}, "b": {"int64_param": -1}, "c": {"string_param": ""}, "d": {"uint64_param": 1}}
    assert parameters_of(request(parameters=values)) == {"a": False, "b": -1, "c": "", "d": 1}
    with pytest.raises(InvalidRequest, match="Parameter 'e' has no value"):
        parameters_of(request(parameters={"e": {}}))


def test_inputs_in_shared_memory_take_no_raw_contents():
    region = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 16}}
    wire = request(tensor("a", AB["a"], parameters=region), tensor("b", AB["b"]), raw=[AB["b"].tobytes()])
    same(read(wire, memory=lambda part: AB["a"].tobytes()).request.inputs, AB)
    with pytest.raises(InvalidRequest, match="cannot be mixed"):
        read(request(typed("a", AB["a"], parameters=region)))


def x(**changes):
    return {"name": "x", "datatype": "INT8", "shape": [2], **changes}


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (request(x()), "Input 'x' has 0 elements in 'int_contents'; shape [2] takes 2"),
        (request(x(contents={"int_contents": [1, 2, 3]})), "has 3 elements"),
        (request(x(contents={"fp32_contents": [1, 2]})), "INT8 must come in 'int_contents', not in fp32_contents"),
        (request(x(contents={"int_contents": [1, 2], "fp32_contents": [1]})), "not in int_contents, fp32_contents"),
        (request(x(contents={"int_contents": [1, 128]})), "Input 'x' has 128, which is out of the range of INT8"),
        (request(x(contents={"int_contents": [1, 2]}), raw=[b"12"]), "'contents'; they cannot be mixed"),
        (request(x(), raw=[b"12", b""]), "has 2 elements, 1 more than there are inputs"),
        (request(x(), raw=[b"1"]), "Input 'x' has 1 bytes of data; INT8 of shape [2] takes 2"),
        (request(x(shape=[-2]), raw=[b"12"]), "has a dimension '-2'"),
        (request(x(shape=[2**62, 4])), "no tensor is that large"),
        (request(x(datatype="INT16")), "has datatype 'INT16'; expected 'INT8'"),
        (request(x(name="z")), "Unknown input 'z'"),
        (request(x(), x(), raw=[b"12", b"12"]), "Input 'x' is given more than once"),
        (request(x(parameters={"shared_memory_region": {"string_param": "r"}})), "'shared_memory_byte_size'"),
        (request(parameters={"sequence_id": {"int64_param": 1}}), "Parameter 'sequence_id'"),
        (request(outputs=[{"name": "q"}]), "no output 'q'"),
    ],
)
def test_what_does_not_fit_is_named(wire, text):
    with pytest.raises(InvalidRequest) as error:
        read(wire, echo("INT8") | {"serving_default": echo_model("int8", (None,)).signatures["serving_default"]})
    assert text in str(error.value)


def test_an_input_beyond_the_raw_contents():
    with pytest.raises(InvalidRequest, match="Input 'b' has no data: 'raw_input_contents' has only 1 elements"):
        read(request(tensor("a", AB["a"]), tensor("b", AB["b"]), raw=[AB["a"].tobytes()]))


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_halves_are_rejected_in_typed_contents(datatype):
    with pytest.raises(InvalidRequest, match=f"{datatype} must come in 'raw_input_contents'"):
        read(request({"name": "x", "datatype": datatype, "shape": [0, 2]}), echo(datatype))


@given(st.binary(max_size=80))
def test_any_message_is_a_request_or_rejected(content):
    with suppress(DecodeError, InvalidRequest):
        read(message_class("inference.ModelInferRequest").FromString(content))
