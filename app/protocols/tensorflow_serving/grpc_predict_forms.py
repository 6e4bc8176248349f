"""Forms of PredictRequests: messages whose bytes outside the tensors were seen before are not parsed again.

A client sends the same message again and again, with other numbers in it. Its form is everything but the numbers: where
they lie in the message, and what the rest of it says. A form is learnt from a message that was parsed, if it is plain:
every field once, every tensor as raw bytes or as a packed list that looks in memory as it does on the wire. Lengths are
part of the rest, so a message whose rest is equal is laid out equally, and its numbers are where the form says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import ENCODING_BY_DTYPE
from app.codecs.protobuf.wire import LENGTH_DELIMITED, VARINT, read_varint
from app.core.bounded_cache import BoundedCache
from app.core.inference import Array

_Request = message_class("tensorflow.serving.PredictRequest")
_FIELDS = {field.name: field.number for field in _Request.DESCRIPTOR.fields}
_TENSOR = {field.name: field.number for field in message_class("tensorflow.TensorProto").DESCRIPTOR.fields}

#: Forms that are remembered, bytes outside the tensors of each, and of one length the places of the first tensor.
#: Chosen: 4 MiB at most.
_MOST_FORMS, _MOST_BYTES, _MOST_PLACES = 1024, 4096, 8


class FormInput(NamedTuple):
    """A tensor of a form: its bytes are those of the message from `start` to `end`."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    end: int


class PredictForm:
    """What messages of one form have in common.

    Attributes:
        spec: the ModelSpec.
        outputs: the wanted ones, empty for all.
        rows: the first dimension of every input; 0 if they have none in common.
    """

    __slots__ = ("_pieces", "inputs", "outputs", "rows", "size", "spec")

    def __init__(self, content: bytes, request: Any, outputs: tuple[str, ...], inputs: Sequence[FormInput]) -> None:
        self.size = len(content)
        self.spec = type(request.model_spec).FromString(request.model_spec.SerializeToString())
        self.outputs = outputs
        self.inputs = inputs
        rows = {each.shape[0] if each.shape else 0 for each in inputs}
        self.rows = rows.pop() if len(rows) == 1 else 0
        starts = [each.end for each in inputs]
        ends = [*(each.start for each in inputs[1:]), self.size]
        self._pieces = [
            (start, end, content[start:end]) for start, end in zip(starts, ends, strict=True) if start < end
        ]

    def fits(self, content: bytes) -> bool:
        """Whether the message is of this form; its bytes before the first tensor are."""
        return len(content) == self.size and all(content[start:end] == piece for start, end, piece in self._pieces)

    def read(self, content: bytes) -> dict[str, Array]:
        """The inputs of a message of this form."""
        return {
            name: np.frombuffer(content[start:end], dtype).reshape(shape)
            for name, dtype, shape, start, end in self.inputs
        }

    def read_together(self, contents: Sequence[bytes]) -> dict[str, Array]:
        """The inputs of several messages, one behind another: of shape [messages x rows, ...]."""
        return {
            name: np.frombuffer(b"".join([each[start:end] for each in contents]), dtype).reshape(
                len(contents) * self.rows, *shape[1:]
            )
            for name, dtype, shape, start, end in self.inputs
        }


class PredictForms:
    """The forms that were seen."""

    def __init__(self) -> None:
        self._forms: BoundedCache[bytes, PredictForm] = BoundedCache(_MOST_FORMS)
        self._places: BoundedCache[int, tuple[int, ...]] = BoundedCache(_MOST_FORMS)  # by length, of the first tensor

    def find(self, content: bytes) -> PredictForm | None:
        for place in self._places.get(len(content), ()):
            form = self._forms.get(content[:place])
            if form is not None and form.fits(content):
                return form
        return None

    def learn(self, content: bytes, request: Any, outputs: tuple[str, ...], inputs: Mapping[str, Array]) -> None:
        """Remembers the form of a message that was parsed to these inputs, if it is plain."""
        if not inputs or len(content) - sum([each.nbytes for each in inputs.values()]) > _MOST_BYTES:
            return
        found = _tensors(content, inputs)
        if found is None:
            return
        place, size = found[0].start, len(content)
        self._forms.keep(content[:place], PredictForm(content, request, outputs, found))
        places = self._places.get(size, ())
        if place not in places:
            self._places.keep(size, (place, *places[: _MOST_PLACES - 1]))


class _NotPlain(Exception):
    """The message has no form."""


def _tensors(content: bytes, inputs: Mapping[str, Array]) -> list[FormInput] | None:
    """Where the tensors lie, in the order of the message; None if it is not plain."""
    found = []
    try:
        for number, start, end in _fields(content, 0, len(content)):
            if number == _FIELDS["inputs"]:
                found.append(_entry(content, start, end, inputs))
            elif number not in _FIELDS.values():
                return None
    except _NotPlain:
        return None
    names = {each.name for each in found}
    return found if len(names) == len(found) == len(inputs) else None


def _entry(content: bytes, start: int, end: int, inputs: Mapping[str, Array]) -> FormInput:
    """An entry of the map: a key and a tensor, each once."""
    places = {number: (start, end) for number, start, end in _once(content, start, end)}
    if places.keys() != {1, 2}:
        raise _NotPlain
    name = content[slice(*places[1])].decode()
    array = inputs.get(name)
    if array is None or array.dtype.hasobject or array.dtype == np.bool_:
        raise _NotPlain
    encoding = ENCODING_BY_DTYPE[array.dtype]
    fields = {number: place for number, *place in _once(content, *places[2])}
    values = fields.keys() - {_TENSOR["dtype"], _TENSOR["tensor_shape"], _TENSOR["version_number"]}
    packed = {_TENSOR[encoding.field]} if encoding.packed else set()
    if len(values) != 1 or not values <= {_TENSOR["tensor_content"], *packed}:
        raise _NotPlain
    start, end = fields[values.pop()]
    if end - start != array.nbytes or content[start:end] != array.tobytes():
        raise _NotPlain
    return FormInput(name, array.dtype, array.shape, start, end)


def _once(content: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """As `_fields`. Raises _NotPlain if one comes again."""
    seen = set()
    for each in _fields(content, start, end):
        if each[0] in seen:
            raise _NotPlain
        seen.add(each[0])
        yield each


def _fields(content: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of the value of each field. Raises _NotPlain at a field of fixed size."""
    while start < end:
        tag, start = read_varint(content, start)
        if tag & 7 == LENGTH_DELIMITED:
            length, start = read_varint(content, start)
        elif tag & 7 == VARINT:
            length = read_varint(content, start)[1] - start
        else:
            raise _NotPlain
        if start + length > end:
            raise _NotPlain
        yield tag >> 3, start, start + length
        start += length
