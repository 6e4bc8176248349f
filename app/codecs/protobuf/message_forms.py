"""Forms of messages with tensors: a message whose bytes outside the tensors were seen before is not parsed again.

A client sends the same message again and again, with other numbers in it. The form of a message is everything but the
numbers: their places, and the meaning of the rest. A form is learnt from a parsed message, if it is plain: its protocol
finds the tensors as bytes that look in memory as they do on the wire. Lengths are part of the rest, so messages with an
equal rest have their numbers in the same places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from app.codecs.protobuf.wire import LENGTH_DELIMITED, VARINT, read_varint
from app.core.bounded_cache import BoundedCache
from app.core.inference import Array

#: The most forms, the most bytes outside the tensors of a form, and the most places of the first tensor for messages of
#: one length. Chosen: 4 MiB at most.
_MOST_FORMS, _MOST_BYTES, _MOST_PLACES = 1024, 4096, 8


class FormInput(NamedTuple):
    """A tensor of a form: its bytes are those of the message from `start` to `end`."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    end: int


class MessageForm:
    """The form of messages that differ in their numbers alone.

    Attributes:
        inputs: in the order of the message.
        rows: the first dimension of all inputs; 0 if they have none in common.
    """

    __slots__ = ("_pieces", "inputs", "rows", "size")

    def __init__(self, content: bytes, inputs: Sequence[FormInput]) -> None:
        self.size = len(content)
        self.inputs = inputs
        rows = {each.shape[0] if each.shape else 0 for each in inputs}
        self.rows = rows.pop() if len(rows) == 1 else 0
        starts = [each.end for each in inputs]
        ends = [*(each.start for each in inputs[1:]), self.size]
        self._pieces = [
            (start, end, content[start:end]) for start, end in zip(starts, ends, strict=True) if start < end
        ]

    def fits(self, content: bytes) -> bool:
        """Whether a message is of this form, given that its bytes before the first tensor are."""
        return len(content) == self.size and all(content[start:end] == piece for start, end, piece in self._pieces)

    def read(self, content: bytes) -> dict[str, Array]:
        """The inputs of a message of this form."""
        return {
            name: np.frombuffer(content[start:end], dtype).reshape(shape)
            for name, dtype, shape, start, end in self.inputs
        }

    def read_together(self, contents: Sequence[bytes]) -> dict[str, Array]:
        """The inputs of several messages, one after another: [messages x rows, ...]."""
        return {
            name: np.frombuffer(b"".join([each[start:end] for each in contents]), dtype).reshape(
                len(contents) * self.rows, *shape[1:]
            )
            for name, dtype, shape, start, end in self.inputs
        }


Form = TypeVar("Form", bound=MessageForm)


class MessageForms(Generic[Form]):
    """The forms that were learnt."""

    def __init__(self) -> None:
        self._forms: BoundedCache[bytes, Form] = BoundedCache(_MOST_FORMS)
        self._places: BoundedCache[int, tuple[int, ...]] = BoundedCache(_MOST_FORMS)  # by length, of the first tensor

    def find(self, content: bytes) -> Form | None:
        for place in self._places.get(len(content), ()):
            form = self._forms.get(content[:place])
            if form is not None and form.fits(content):
                return form
        return None

    def keep(self, content: bytes, form: Form) -> None:
        """Keep the form of a message."""
        place, size = form.inputs[0].start, len(content)
        self._forms.keep(content[:place], form)
        places = self._places.get(size, ())
        if place not in places:
            self._places.keep(size, (place, *places[: _MOST_PLACES - 1]))


class NotPlain(Exception):
    """A message is not plain, and has no form."""


def is_short_beside(content: bytes, size: int) -> bool:
    """Whether few bytes of a message are outside of its tensors of `size` bytes."""
    return len(content) - size <= _MOST_BYTES


def fields_once(content: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields, as by `fields_of`, if none is repeated. Raises NotPlain if a field comes again."""
    seen = set()
    for each in fields_of(content, start, end):
        if each[0] in seen:
            raise NotPlain
        seen.add(each[0])
        yield each


def fields_of(content: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields: number, start and end of the value. Raises NotPlain at a field of fixed size."""
    while start < end:
        tag, start = read_varint(content, start)
        if tag & 7 == LENGTH_DELIMITED:
            length, start = read_varint(content, start)
        elif tag & 7 == VARINT:
            length = read_varint(content, start)[1] - start
        else:
            raise NotPlain
        if start + length > end:
            raise NotPlain
        yield tag >> 3, start, start + length
        start += length
