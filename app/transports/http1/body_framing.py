"""Where the body of a request ends: by its length, or in chunks (RFC 9112, sections 6.2 and 7.1).

A framing takes the bytes behind a head as they come, and returns the content in them. When the body is complete, `rest`
has the bytes behind it. It keeps only an incomplete line, below 8 KiB, and searches that again with each piece fed.
"""

from __future__ import annotations

import re

_LINE_END = b"\r\n"

#: A size without extensions and leading zeros, with its line end: never that of the last chunk.
_PLAIN_SIZE = re.compile(rb"([1-9A-Fa-f][0-9A-Fa-f]{0,15})\r\n")

#: The line before a chunk: a size, and perhaps extensions, which are ignored: any bytes but controls other than tabs.
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+:[\t\x20-\x7e\x80-\xff]*")

#: The most bytes of a line, and of all trailers (chosen: as much as many servers take for a head).
_MAX_LINE_BYTES = _MAX_TRAILER_BYTES = 8 * 1024

#: What extensions may take in all: this many bytes, and this many more for each chunk (as Go's net/http).
_EXTENSION_BYTES, _EXTENSION_BYTES_PER_CHUNK = 16 * 1024, 16


class BadFraming(Exception):
    """The body is malformed, so its end cannot be found."""


class Sized:
    """A body of `length` bytes.

    Attributes:
        complete: the whole body was fed; then `rest` are the bytes behind it.
        missing: bytes of the body that were not fed yet; 0 or less once it is complete.
    """

    def __init__(self, length: int) -> None:
        self.missing = length
        self.complete = length == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """The content in `data`."""
        missing = self.missing
        self.missing -= len(data)
        if self.missing > 0:
            return data
        self.complete = True
        self.rest = data[missing:]
        return data[:missing]


class Chunked:
    """A chunked body, with the attributes of `Sized`; trailers are checked and dropped.

    missing: bytes that the present chunk lacks, its line end included.
    """

    def __init__(self) -> None:
        self.complete = False
        self.rest = b""
        self._line = b""  # the beginning of a line whose end is missing
        self.missing = 0
        self._last = False  # the chunk of size 0 was read: trailers follow
        self._extension_bytes = 0
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """The content in `data`. Raises BadFraming if the bytes fed so far cannot begin a chunked body."""
        if self._line:
            data, self._line = self._line + data, b""
        content: list[bytes] = []
        at = self._read_data(data, 0, content) if self.missing else 0
        while not (self.complete or self.missing):
            # 1. Whole chunks with plain sizes.
            at = _read_whole_chunks(data, at, content)

            # 2. A size with extensions, that of a chunk that is not whole or is the last, or a trailer; then the data
            #    behind it, as far as they have come.
            end = data.find(_LINE_END, at, at + _MAX_LINE_BYTES)
            if end < 0:
                self._keep_line(data[at:])
                break
            self._read_line(data[at:end])
            at = self._read_data(data, end + len(_LINE_END), content)
        if self.complete:
            self.rest = data[at:]
        return b"".join(content)

    def _keep_line(self, line: bytes) -> None:
        if len(line) >= _MAX_LINE_BYTES or b"\n" in line:
            raise BadFraming
        self._line = line

    def _read_data(self, data: bytes, at: int, content: list[bytes]) -> int:
        """Takes what there is of a chunk's data and its line end; `missing` counts both."""
        size = self.missing - len(_LINE_END)
        if size > 0:
            content.append(data[at : at + size])
        end = data[at + max(size, 0) : at + self.missing]
        if end != _LINE_END[len(_LINE_END) - min(self.missing, len(_LINE_END)) :][: len(end)]:
            raise BadFraming
        taken = min(self.missing, len(data) - at)
        self.missing -= taken
        return at + taken

    def _read_line(self, line: bytes) -> None:
        if self._last:
            self._read_trailer(line)
            return
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise BadFraming
        self._extension_bytes += len(line) - size.end(1) - _EXTENSION_BYTES_PER_CHUNK
        self._extension_bytes = max(0, self._extension_bytes)
        if self._extension_bytes > _EXTENSION_BYTES:
            raise BadFraming
        length = int(size[1], 16)
        self._last = length == 0
        self.missing = length + len(_LINE_END) if length else 0

    def _read_trailer(self, line: bytes) -> None:
        self._trailer_bytes += len(line) + len(_LINE_END)
        if not line:
            self.complete = True
        elif self._trailer_bytes > _MAX_TRAILER_BYTES or _TRAILER.fullmatch(line) is None:
            raise BadFraming


Framing = Sized | Chunked


def _read_whole_chunks(data: bytes, at: int, content: list[bytes]) -> int:
    """Takes whole chunks with plain sizes from `at` on; returns the position of the first line that begins none."""
    size_at = _PLAIN_SIZE.match
    while (size := size_at(data, at)) is not None:
        start = size.end()
        end = start + int(size[1], 16)
        if data[end : end + 2] != _LINE_END:
            break
        content.append(data[start:end])
        at = end + 2
    return at
