"""Forms of PredictRequests (app/codecs/protobuf/message_forms.py).

One is plain if every field comes once, every tensor as raw bytes or as a packed list that looks in memory as it does on
the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.codecs.protobuf.message_forms import (
    FormInput,
    MessageForm,
    MessageForms,
    NotPlain,
    fields_of,
    fields_once,
    is_short_beside,
)
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import ENCODING_BY_DTYPE
from app.core.inference import Array

_Request = message_class("tensorflow.serving.PredictRequest")
_FIELDS = {field.name: field.number for field in _Request.DESCRIPTOR.fields}
_TENSOR = {field.name: field.number for field in message_class("tensorflow.TensorProto").DESCRIPTOR.fields}


class PredictForm(MessageForm):
    """The common part of all messages of one form.

    Attributes:
        spec: the ModelSpec.
        outputs: the wanted ones, empty for all.
    """

    __slots__ = ("outputs", "spec")

    def __init__(self, content: bytes, request: Any, outputs: tuple[str, ...], inputs: Sequence[FormInput]) -> None:
        super().__init__(content, inputs)
        self.spec = type(request.model_spec).FromString(request.model_spec.SerializeToString())
        self.outputs = outputs


class PredictForms(MessageForms[PredictForm]):
    """The forms that were seen."""

    def learn(self, content: bytes, request: Any, outputs: tuple[str, ...], inputs: Mapping[str, Array]) -> None:
        """Remembers the form of a message that was parsed to these inputs, if it is plain."""
        if not inputs or not is_short_beside(content, sum([each.nbytes for each in inputs.values()])):
            return
        found = _tensors(content, inputs)
        if found is not None:
            self.keep(content, PredictForm(content, request, outputs, found))


def _tensors(content: bytes, inputs: Mapping[str, Array]) -> list[FormInput] | None:
    """The places of the tensors, in the order of the message; None if it is not plain."""
    found = []
    try:
        for number, start, end in fields_of(content, 0, len(content)):
            if number == _FIELDS["inputs"]:
                found.append(_entry(content, start, end, inputs))
            elif number not in _FIELDS.values():
                return None
    except NotPlain:
        return None
    names = {each.name for each in found}
    return found if len(names) == len(found) == len(inputs) else None


def _entry(content: bytes, start: int, end: int, inputs: Mapping[str, Array]) -> FormInput:
    """An entry of the map: a key and a tensor, each once."""
    places = {number: (start, end) for number, start, end in fields_once(content, start, end)}
    if places.keys() != {1, 2}:
        raise NotPlain
    name = content[slice(*places[1])].decode()
    array = inputs.get(name)
    if array is None or array.dtype.hasobject or array.dtype == np.bool_:
        raise NotPlain
    encoding = ENCODING_BY_DTYPE[array.dtype]
    fields = {number: place for number, *place in fields_once(content, *places[2])}
    values = fields.keys() - {_TENSOR["dtype"], _TENSOR["tensor_shape"], _TENSOR["version_number"]}
    packed = {_TENSOR[encoding.field]} if encoding.packed else set()
    if len(values) != 1 or not values <= {_TENSOR["tensor_content"], *packed}:
        raise NotPlain
    start, end = fields[values.pop()]
    if end - start != array.nbytes or content[start:end] != array.tobytes():
        raise NotPlain
    return FormInput(name, array.dtype, array.shape, start, end)
