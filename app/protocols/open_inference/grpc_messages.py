"""ModelInferRequest messages to calls, and their results to ModelInferResponse messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf, prod
from typing import Any

import numpy as np

from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, InferenceResponse, ModelSignature, TensorSpec
from app.protocols.open_inference.binary_tensors import decode, encode
from app.protocols.open_inference.datatypes import checked_shape, datatype_of, declared_input
from app.protocols.open_inference.infer_call import InferCall, check_count, choose_signature, make_call, wanted_output
from app.protocols.open_inference.parameters import Parameters, request_parameters
from app.protocols.open_inference.shared_memory import ReadRegion, RegionSlice, WriteRegion, region_slice

_Response = message_class("inference.ModelInferResponse")

#: Datatypes, the field of InferTensorContents that has their elements, and the field's type.
_FIELDS = (
    (("BOOL",), "bool_contents", np.dtype(np.bool_)),
    (("INT8", "INT16", "INT32"), "int_contents", np.dtype(np.int32)),
    (("INT64",), "int64_contents", np.dtype(np.int64)),
    (("UINT8", "UINT16", "UINT32"), "uint_contents", np.dtype(np.uint32)),
    (("UINT64",), "uint64_contents", np.dtype(np.uint64)),
    (("FP32",), "fp32_contents", np.dtype(np.float32)),
    (("FP64",), "fp64_contents", np.dtype(np.float64)),
    (("BYTES",), "bytes_contents", STRING),
)
_FIELD_OF = {datatype: (field, carrier) for datatypes, field, carrier in _FIELDS for datatype in datatypes}


def read_message(
    message: Any,
    signatures: Mapping[str, ModelSignature],
    read: ReadRegion,
    deadline: Callable[[float], float],
    most: float = inf,
) -> InferCall:
    """The call in a ModelInferRequest.

    Args:
        deadline: timeout in seconds (0 for none) -> deadline in monotonic seconds.
        most: the most strings in a raw content.

    Raises:
        TakesLong: there are more.
        InvalidRequest, SignatureNotFound: the text says what is wrong.
        Unsupported: the protocol has no datatype for an input or output of this model.
    """
    parameters = request_parameters(parameters_of(message))
    signature = choose_signature(signatures, parameters.signature)
    inputs = _read_inputs(message, signature, read, most)
    check_count(message.outputs, signature)
    outputs = [wanted_output(output.name, parameters_of(output), True) for output in message.outputs]
    return make_call(inputs, outputs, signature, parameters, deadline_s=deadline(parameters.timeout_s), id=message.id)


def parameters_of(message: Any) -> Parameters:
    """A map of InferParameter as plain values. Raises InvalidRequest if one is empty."""
    if not message.parameters:
        return {}
    values: dict[str, object] = {}
    for name, parameter in message.parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise InvalidRequest(f"Parameter {name[:64]!r} has no value")
        values[name] = getattr(parameter, kind)
    return values


def _read_inputs(message: Any, signature: ModelSignature, read: ReadRegion, most: float) -> dict[str, Array]:
    raw = message.raw_input_contents
    rest: Iterator[bytes] = iter(raw)
    inputs: dict[str, Array] = {}
    for tensor in message.inputs:
        name = tensor.name
        if name in inputs:
            raise InvalidRequest(f"Input {name[:256]!r} is given more than once")
        spec = declared_input(name, tensor.datatype, signature)
        shape = checked_shape(spec, tensor.shape)
        part = region_slice(parameters_of(tensor))
        if (bool(raw) or part is not None) and tensor.HasField("contents"):
            raise InvalidRequest(f"Input {name!r} has 'contents'; they cannot be mixed with other forms of data")
        if part is not None:
            inputs[name] = decode(read(part), spec, shape)
        elif raw:
            inputs[name] = decode(_next(rest, name, len(raw)), spec, shape, most)
        else:
            inputs[name] = _typed(tensor.contents, tensor.datatype, spec, shape)
    left = sum(1 for _ in rest)
    if left:
        raise InvalidRequest(
            f"'raw_input_contents' has {len(raw)} elements, {left} more than there are inputs for them"
        )
    return inputs


def _next(rest: Iterator[bytes], name: str, count: int) -> bytes:
    content = next(rest, None)
    if content is None:
        raise InvalidRequest(f"Input {name!r} has no data: 'raw_input_contents' has only {count} elements")
    return content


def _typed(contents: Any, datatype: str, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """The tensor in `contents`. Raises InvalidRequest."""
    if datatype not in _FIELD_OF:
        raise InvalidRequest(f"Input {spec.name!r}: {datatype} must come in 'raw_input_contents'")
    field, carrier = _FIELD_OF[datatype]
    filled = [each.name for each, _ in contents.ListFields()]
    if filled not in ([], [field]):
        raise InvalidRequest(f"Input {spec.name!r}: {datatype} must come in {field!r}, not in {', '.join(filled)}")
    values = getattr(contents, field)
    if len(values) != prod(shape):
        raise InvalidRequest(
            f"Input {spec.name!r} has {len(values)} elements in {field!r}; shape {list(shape)} takes {prod(shape)}"
        )
    array = np.empty(len(values), carrier)
    array[:] = values
    return _narrowed(array, spec, datatype).reshape(shape)


def _narrowed(array: Array, spec: TensorSpec, datatype: str) -> Array:
    """Small integers come in wider fields. Raises InvalidRequest if one does not fit."""
    if array.dtype == spec.dtype:
        return array
    narrow = array.astype(spec.dtype)
    wrong = np.flatnonzero(narrow != array)
    if len(wrong):
        raise InvalidRequest(f"Input {spec.name!r} has {array[wrong[0]]}, which is out of the range of {datatype}")
    return narrow


def write_message(call: InferCall, response: InferenceResponse, write: WriteRegion) -> Any:
    """The ModelInferResponse, with all tensors in `raw_output_contents`; empty there if they are in shared memory.

    Raises:
        InvalidRequest: an output cannot be classified, or does not fit its shared memory.
    """
    message = _Response(model_name=response.model, model_version=str(response.version), id=call.id)
    for wanted, array in call.results(response):
        output = message.outputs.add(name=wanted.name, datatype=datatype_of(array.dtype), shape=array.shape)
        content = encode(array)
        if wanted.region is None:
            message.raw_output_contents.append(bytes(content))
        else:
            write(wanted.region, content)
            _name_region(output, wanted.region, len(content))
            message.raw_output_contents.append(b"")
    if call.final_response:
        message.parameters["triton_final_response"].bool_param = True
    return message


def _name_region(output: Any, region: RegionSlice, byte_size: int) -> None:
    output.parameters["shared_memory_region"].string_param = region.region
    output.parameters["shared_memory_offset"].int64_param = region.offset
    output.parameters["shared_memory_byte_size"].int64_param = byte_size
