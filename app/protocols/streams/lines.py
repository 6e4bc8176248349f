"""Bytes to numbered lines, in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from app.codecs.errors import BodyTooLarge


class Block(NamedTuple):
    """Consecutive lines of a stream, without blank ones. `first` is the number of the first line, from 1."""

    first: int
    lines: Sequence[bytes]

    @property
    def size(self) -> int:
        """The bytes of the lines."""
        return sum(map(len, self.lines))

    def part(self, begin: int, end: int) -> Block:
        return Block(self.first + begin, self.lines[begin:end])

    def halves(self) -> tuple[Block, Block]:
        half = len(self.lines) // 2
        return self.part(0, half), self.part(half, len(self.lines))


class LineCutter:
    """The part of a body that has arrived, cut into blocks of lines. Blank lines are counted and left out.

    Args:
        max_lines: the most lines of a block.
        max_line_bytes: a longer line is rejected as soon as this many bytes of it have arrived.
    """

    def __init__(self, max_lines: int, max_line_bytes: int) -> None:
        self._max_lines = max_lines
        self._max_line_bytes = max_line_bytes
        self._begun = bytearray()  # the line whose end has not arrived
        self._number = 0  # of the last complete line

    def feed(self, data: bytes) -> Iterator[Block]:
        """The blocks of lines that end in the next bytes; no block waits for more.

        Raises BodyTooLarge after all lines before the one that is too long.
        """
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = self._end() + ended[0]
        yield from self._blocks(ended)
        self._begun += rest
        if len(self._begun) > self._max_line_bytes:
            raise self._too_long(self._number + 1)

    def finish(self) -> Iterator[Block]:
        """The block of the last line, if the body does not end with a line end."""
        return self._blocks([self._end()])

    def _end(self) -> bytes:
        line = bytes(self._begun)
        self._begun.clear()
        return line

    def _blocks(self, lines: Iterable[bytes]) -> Iterator[Block]:
        block: list[bytes] = []
        for line in lines:
            blank, too_long = not line or line.isspace(), len(line) > self._max_line_bytes
            if block and (blank or too_long or len(block) == self._max_lines):
                yield self._block(block)
                block = []
            self._number += 1
            if too_long:
                raise self._too_long(self._number)
            if not blank:
                block.append(line)
        if block:
            yield self._block(block)

    def _block(self, lines: list[bytes]) -> Block:
        return Block(self._number - len(lines) + 1, lines)

    def _too_long(self, number: int) -> BodyTooLarge:
        return BodyTooLarge(
            f"Line {number} is longer than {self._max_line_bytes} bytes:"
            " max_body_bytes, or what a small container has memory for"
        )
