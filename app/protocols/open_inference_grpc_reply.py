"""ModelInferResponse messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.inference import InferenceResponse
from app.protocols.asgi import Buffer
from app.protocols.messages import message_class
from app.protocols.open_inference_binary import encode
from app.protocols.open_inference_call import Call
from app.protocols.open_inference_datatypes import datatype_of
from app.protocols.open_inference_memory import RegionSlice

#: Puts bytes into a part of shared memory.
Write = Callable[[RegionSlice, Buffer], None]

_Response = message_class("inference.ModelInferResponse")


def write_message(call: Call, response: InferenceResponse, write: Write) -> Any:
    """Every output's bytes in `raw_output_contents`; empty for those in shared memory, to keep the order.

    Raises InvalidRequest where an output cannot be classified or does not fit its shared memory.
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
