"""A reader of flatbuffers, the format of `.tflite` files, as far as such files need it.

A table begins with the distance back to its vtable, which holds the place of each field. Strings, vectors and other
tables are referred to by the distance to them. All places are checked: a file that is cut short, or wrong, raises
NotAFlatbuffer and reads nothing outside the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

#: The most that may be read of a file: numbers of vectors, bytes of texts, and _A_TABLE for each table. Parts may be
#: shared, so that few bytes refer to many. Chosen: ten times what the largest public models need; it takes seconds.
_MOST, _A_TABLE = 8_000_000, 16


class NotAFlatbuffer(ValueError):
    """A place outside the file, or a count that its bytes cannot hold."""


class Flatbuffer:
    """The bytes of a flatbuffer."""

    def __init__(self, content: bytes | memoryview) -> None:
        self.content = content
        self._left = _MOST

    @property
    def root(self) -> Table:
        return Table(self, self.number("<I", 0))

    def number(self, form: str, place: int) -> Any:
        """The number at a place."""
        if not 0 <= place <= len(self.content) - struct.calcsize(form):
            raise NotAFlatbuffer
        return struct.unpack_from(form, self.content, place)[0]

    def take(self, count: int) -> None:
        """Counts what is read. Raises NotAFlatbuffer if it is too much."""
        self._left -= count
        if self._left < 0:
            raise NotAFlatbuffer


class Table:
    """A table at a place. Fields are named by their numbers in the schema; one that is missing has its default."""

    def __init__(self, buffer: Flatbuffer, place: int) -> None:
        self._buffer = buffer
        self._place = place
        self._vtable = place - buffer.number("<i", place)
        self._fields = (buffer.number("<H", self._vtable) - 4) // 2

    def number(self, field: int, form: str = "<i", default: Any = 0) -> Any:
        place = self._field(field)
        return self._buffer.number(form, place) if place else default

    def text(self, field: int) -> str:
        place, count = self._vector(field, 1)
        self._buffer.take(count)
        return bytes(self._buffer.content[place : place + count]).decode(errors="replace")

    def numbers(self, field: int, form: str = "i") -> tuple[Any, ...]:
        """The numbers of a vector."""
        place, count = self._vector(field, struct.calcsize(form))
        self._buffer.take(count)
        return struct.unpack_from(f"<{count}{form}", self._buffer.content, place) if count else ()

    def part(self, field: int) -> memoryview:
        """The bytes of a vector of bytes."""
        place, count = self._vector(field, 1)
        return memoryview(self._buffer.content)[place : place + count]

    def table(self, field: int) -> Table | None:
        place = self._field(field)
        return Table(self._buffer, place + self._buffer.number("<I", place)) if place else None

    def tables(self, field: int) -> Iterator[Table]:
        """The tables of a vector."""
        place, count = self._vector(field, 4)
        self._buffer.take(count * _A_TABLE)
        for each in range(place, place + 4 * count, 4):
            yield Table(self._buffer, each + self._buffer.number("<I", each))

    def _field(self, field: int) -> int:
        """The place of a field; 0 if it is missing."""
        if field >= self._fields:
            return 0
        offset = self._buffer.number("<H", self._vtable + 4 + 2 * field)
        return self._place + offset if offset else 0

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        """The place and the number of elements of a vector; 0 elements if it is missing."""
        place = self._field(field)
        if not place:
            return 0, 0
        start = place + self._buffer.number("<I", place)
        count = self._buffer.number("<I", start)
        if start + 4 + count * size > len(self._buffer.content):
            raise NotAFlatbuffer
        return start + 4, count
