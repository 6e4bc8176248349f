"""The memory that a long reply takes while it is written: reserved of the room for bodies (body_room.py).

1. The outputs are computed by then. So the room is measured anew, and only the text or bytes made of them are reserved.
2. The most that their values may take is reserved. Where that does not fit, numbers are written once more to count
   their text, in a thread: what would fit is never refused.
3. A reply that is larger than the largest room since the start is refused for good, any other for now.
4. Outputs whose shapes the signature tells are reserved before their request is queued, until they are there.
5. The reservation ends once the connection has the reply, or its client has gone. By then unsent bytes are memory of
   the process, and part of each measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import prod

from app.codecs.json.writing import text_bytes
from app.core.inference import Array, InferenceRequest, ModelSignature, TensorSpec
from app.core.interfaces import Computing
from app.transports.memory.body_room import SHORT_BYTES
from app.transports.memory.client_memory import ClientMemory
from app.transports.request_trace import rows_of

#: Times a text that is there while it is written: slices, joined, in the reply. Measured: 3.03.
_TEXTS = 3.1

#: Times their size that outputs in a binary format become at most. Measured: protobuf 1, npy and msgpack 2, npz 3.
_BINARY = 3.1

#: Memory that a string takes beside its bytes. Measured: 78 in JSON, 38 in protobuf.
_STRING_BYTES = 96

#: Characters of JSON that a byte of a string becomes at most: \\u0000.
_ESCAPED = 6

#: Characters of a number and the comma after it, by kind and size of the type; others have fewer than the last.
_CHARACTERS = {"f2": 20, "f4": 20, "f8": 26, "b1": 6, "i1": 5, "u1": 4, "i2": 7, "u2": 6, "i4": 12, "u4": 11}
_MOST_CHARACTERS = 26

#: Times their size that outputs take until they are there: of parts of a request, and joined. Measured: 2.4.
_JOINED = 2.5

#: Outputs of fewer bytes are not reserved. Chosen.
_LONG_OUTPUTS_BYTES = 2**20

#: What an output takes for each row, where rows of several outputs are written in turn. Measured: 233.
_ROW_BYTES = 256


def binary_cost(outputs: Mapping[str, Array]) -> float:
    """Bytes that these outputs take to write in a binary format."""
    return sum([_BINARY * array.nbytes + _strings(array, _BINARY) for array in outputs.values()])


def text_cost(outputs: Mapping[str, Array]) -> float:
    """Bytes that these outputs take to write as JSON, whatever their values are."""
    return sum([_text(array, _most_characters(array)) for array in outputs.values()]) + _rows(outputs)


def exact_text_cost(outputs: Mapping[str, Array]) -> float:
    """Bytes that these outputs take to write as JSON, with the values that they have; takes as long as writing them."""
    return sum([_text(array, text_bytes(array)) for array in outputs.values()]) + _rows(outputs)


def reserve_outputs(memory: ClientMemory, model: Computing, request: InferenceRequest) -> float:
    """Reserves what the outputs of a request take at least, before it is queued. Bytes that are to be given back.

    Raises:
        BodyOverMemory, NoMemoryLeft: there is no room for them.
    """
    if not memory.room.is_limited():
        return 0.0
    signature = model.signatures.get(request.signature)
    held = 0.0 if signature is None else outputs_bytes(signature, request)
    if held < _LONG_OUTPUTS_BYTES:
        return 0.0
    cost = _JOINED * held
    if not memory.room.take(cost):
        raise memory.reply_rejection(cost)
    return cost


def outputs_bytes(signature: ModelSignature, request: InferenceRequest) -> float:
    """Bytes of the outputs at least, by the signature: 0 without a shape; an unknown size is 1, but for the rows."""
    rows = rows_of(request.inputs) if signature.batchable else 1
    return float(sum([_least_bytes(signature.outputs[name], rows) for name in request.outputs or signature.outputs]))


def _least_bytes(spec: TensorSpec, rows: int) -> int:
    if not spec.shape:
        return 0
    first, *inner = spec.shape
    known = first if isinstance(first, int) else rows
    return known * prod([size for size in inner if isinstance(size, int)]) * spec.dtype.itemsize


async def reserve_reply(memory: ClientMemory, outputs: Mapping[str, Array], *, text: bool) -> float:
    """Reserves what writing these outputs takes, as JSON if `text`. Bytes that are to be given back.

    Raises:
        BodyOverMemory, NoMemoryLeft: there is no room for them.
    """
    if not memory.room.is_limited():
        return 0.0
    if not text:
        return reserve_now(memory, outputs)
    cost = text_cost(outputs)
    if _takes(memory, cost):
        return cost
    return _reserved(memory, outputs, await asyncio.to_thread(exact_text_cost, outputs))


def reserve_now(memory: ClientMemory, outputs: Mapping[str, Array]) -> float:
    """Reserves what writing these outputs takes in a binary format; see `reserve_reply`."""
    return _reserved(memory, outputs, binary_cost(outputs)) if memory.room.is_limited() else 0.0


def _reserved(memory: ClientMemory, outputs: Mapping[str, Array], cost: float) -> float:
    if cost < SHORT_BYTES:
        return 0.0
    if not _takes(memory, cost):
        raise memory.reply_rejection(cost, sum([array.nbytes for array in outputs.values()]), "To write the reply")
    return cost


def _takes(memory: ClientMemory, cost: float) -> bool:
    memory.room.forget()
    return memory.room.take(cost)


def _text(array: Array, characters: float) -> float:
    converted = 0 if array.dtype.hasobject else 4 * array.size  # half and bfloat16 are written as float32
    return _TEXTS * characters + _strings(array, _TEXTS * _ESCAPED) + converted


def _strings(array: Array, times: float) -> float:
    """Bytes that the strings of an output take: each one's own, and its length `times`; 0 for numbers."""
    if not array.dtype.hasobject:
        return 0.0
    return _STRING_BYTES * array.size + times * sum(map(len, array.flat))


def _most_characters(array: Array) -> float:
    """The most characters of numbers, with the brackets of all lists: two and a comma each; 0 for strings."""
    if array.dtype.hasobject:
        return 0.0
    kind = _CHARACTERS.get(f"{array.dtype.kind}{array.dtype.itemsize}", _MOST_CHARACTERS)
    return kind * array.size + 3.0 * sum([prod(array.shape[:depth]) for depth in range(array.ndim)])


def _rows(outputs: Mapping[str, Array]) -> float:
    if len(outputs) < 2:
        return 0.0
    return float(_ROW_BYTES * sum([len(array) for array in outputs.values() if array.ndim]))
