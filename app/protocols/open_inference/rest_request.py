"""Bodies of infer requests over REST: JSON, JSON with binary tensors behind it, or one bare tensor. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, Buffer, ModelSignature, TensorSpec
from app.protocols.open_inference.binary_tensors import decode
from app.protocols.open_inference.datatypes import checked_shape, datatype_of, declared_input
from app.protocols.open_inference.infer_call import Call, WantedOutput, choose_signature, make_call, wanted_output
from app.protocols.open_inference.json_documents import (
    decode_data,
    list_field,
    named_objects,
    parameters_field,
    parse,
    text_field,
)
from app.protocols.open_inference.parameters import RequestParameters, number, request_parameters
from app.protocols.open_inference.shared_memory import RegionSlice, region_slice

#: Gives the bytes of a part of shared memory.
Read = Callable[[RegionSlice], Buffer]

Signatures = Mapping[str, ModelSignature]

#: Where data can be that is not in the JSON.
_ELSEWHERE = ("binary_data_size", "shared_memory_region")


def split_body(body: bytes, header: bytes | None, content_type: bytes | None) -> tuple[Buffer, memoryview]:
    """The JSON and the binary tensors behind it. Without any JSON the body is one bare tensor.

    Args:
        header: Inference-Header-Content-Length, the length of the JSON.

    Raises:
        InvalidRequest: that is no length, or more than there is; or there is no body where it should be JSON.
    """
    if header is None:
        if content_type is not None and content_type.startswith(b"application/octet-stream"):
            return b"", memoryview(body)
        if not body:
            raise InvalidRequest("The request has no body; expected a JSON object")
        return body, memoryview(b"")
    if not header.isdigit() or len(header) > 20 or int(header) > len(body):
        shown = header[:64].decode("latin-1")
        raise InvalidRequest(
            f"Header Inference-Header-Content-Length is {shown!r}; expected a number of bytes up to {len(body)}"
        )
    length = int(header)
    whole = memoryview(body)
    return (body if length == len(body) else whole[:length]), whole[length:]


def read_request(
    head: Buffer, tail: memoryview, signatures: Signatures, read: Read, deadline: Callable[[float], float]
) -> Call:
    """The call in a body that `split_body` split.

    Args:
        deadline: the time at which a request with this timeout in seconds (0 for none) is too late.

    Raises:
        InvalidRequest, SignatureNotFound: naming what is wrong.
        Unsupported: the protocol has no datatype for an input or output of this model.
    """
    if not head:
        return _read_bare(tail, signatures, deadline(0.0))
    document = parse(head)
    parameters = request_parameters(parameters_field(document))
    signature = choose_signature(signatures, parameters.signature)
    inputs = _read_inputs(document, tail, signature, read)
    outputs = [
        wanted_output(name, parameters_field(each, f"Output {name!r}"), parameters.binary_outputs)
        for name, each in named_objects(document, "outputs")
    ]
    return make_call(
        inputs, outputs, signature, parameters, deadline_s=deadline(parameters.timeout_s), id=text_field(document, "id")
    )


def _read_inputs(document: dict[str, Any], tail: memoryview, signature: ModelSignature, read: Read) -> dict[str, Array]:
    inputs: dict[str, Array] = {}
    for name, each in named_objects(document, "inputs"):
        if name in inputs:
            raise InvalidRequest(f"Input {name[:256]!r} is given more than once")
        place = f"Input {name[:256]!r}"
        spec = declared_input(name, text_field(each, "datatype", place), signature)
        shape = checked_shape(spec, list_field(each, "shape", place))
        raw, tail = _take_binary(each, spec, tail, read)
        inputs[name] = decode_data(each["data"], spec, shape) if raw is None else decode(raw, spec, shape)
    if len(tail):
        raise InvalidRequest(f"The body has {len(tail)} bytes behind the last binary tensor")
    return inputs


def _take_binary(
    tensor: dict[str, Any], spec: TensorSpec, tail: memoryview, read: Read
) -> tuple[Buffer | None, memoryview]:
    """The bytes of an input and what remains behind them; None where its data is JSON."""
    place = f"Input {spec.name!r}"
    parameters = parameters_field(tensor, place)
    has_data = tensor.get("data") is not None  # KServe's client writes null beside a tensor of no bytes
    if has_data + sum(source in parameters for source in _ELSEWHERE) != 1:
        raise InvalidRequest(f"{place} must have exactly one of 'data' and the parameters {', '.join(_ELSEWHERE)}")
    part = region_slice(parameters)
    if part is not None:
        return read(part), tail
    if "binary_data_size" not in parameters:
        return None, tail
    size = number(parameters, "binary_data_size")
    if size > len(tail):
        raise InvalidRequest(f"{place} has binary_data_size {size}, but only {len(tail)} bytes of the body are left")
    return tail[:size], tail[size:]


def _read_bare(raw: memoryview, signatures: Signatures, deadline_s: float) -> Call:
    signature = choose_signature(signatures)
    needed = signature.expected(())
    if len(needed) != 1:
        raise InvalidRequest(
            f"A request without JSON is for models with one input; signature {signature.name!r} has "
            f"{len(needed)}: {', '.join(map(repr, needed))}"
        )
    ((name, spec),) = needed.items()
    wanted: Sequence[WantedOutput] = [WantedOutput(each, 0, True) for each in signature.outputs]
    return make_call({name: _bare_tensor(raw, spec)}, wanted, signature, RequestParameters(), deadline_s=deadline_s)


def _bare_tensor(raw: memoryview, spec: TensorSpec) -> Array:
    """A string is the body itself; of numbers, what the shape leaves open follows from the body's length."""
    datatype_of(spec.dtype)
    sizes: list[int | None] = [None] if spec.shape is None else list(spec.shape)
    if spec.dtype == STRING:
        if prod(size or 1 for size in sizes) != 1:
            raise _not_bare(spec)
        return np.array([bytes(raw)], STRING).reshape([1] * len(sizes))
    if sizes.count(None) > 1 and sizes[0] is None:
        sizes[0] = 1
    if sizes.count(None) > 1:
        raise _not_bare(spec)
    row = prod(size for size in sizes if size is not None) * spec.dtype.itemsize
    free = len(raw) // row if row else 0
    return decode(raw, spec, tuple(free if size is None else size for size in sizes))


def _not_bare(spec: TensorSpec) -> InvalidRequest:
    return InvalidRequest(f"The shape of input {spec.name!r}, {spec}, does not follow from the body: send JSON with it")
