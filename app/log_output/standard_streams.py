"""Standard output and error of a server's process, written without waiting for their reader.

`take_over` puts stand-ins in the place of `sys.stderr` and, where it is a pipe or a terminal, `sys.stdout`: text that
Python and its libraries print takes the way of the log, and no flush fails or waits when the interpreter ends. The file
descriptors are for libraries of C and C++ (outputs.py describes their text).
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable
from typing import Any, cast

from app.log_output.line_writer import LineWriter
from app.log_output.outputs import is_read, open_output

#: The seconds that the end of a process may wait until its last lines are read. Chosen.
FLUSH_S = 1.0

_STDOUT, _STDERR = 1, 2

#: The writers of this process, by file descriptor.
_writers: dict[int, LineWriter] = {}


class LineHandler(logging.Handler):
    """A handler that writes records by a LineWriter; the end of `logging` waits for it, at most FLUSH_S."""

    def __init__(self, writer: LineWriter, encoding: str = "utf-8") -> None:
        super().__init__()
        self._writer = writer
        self._encoding = encoding
        self._closed = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")
            self._writer.put(line, error=record.levelno >= logging.ERROR)
        except Exception:  # as each handler of `logging`: a record that cannot be formatted
            self.handleError(record)

    def flush(self) -> None:
        if not self._closed:
            self._writer.flush(FLUSH_S)

    def close(self) -> None:
        self._closed = True  # the end of the process may call `flush` twice, and waits once
        super().close()


def take_over(notice: Callable[[int], str]) -> logging.Handler:
    """A handler that writes to standard error. `notice`: makes the line that says how many lines were dropped.

    Where a program has replaced `sys.stderr` by a stream of its own, records go there, and nothing else changes.
    """
    stderr, stdout = sys.stderr, sys.stdout
    if not isinstance(stderr, io.TextIOWrapper) or not (stderr is sys.__stderr__ or isinstance(stderr, _StandIn)):
        return logging.StreamHandler()
    if _STDERR not in _writers:
        writer = LineWriter(open_output(_STDERR), lambda number: f"{notice(number)}\n".encode())
        sys.stderr = _stand_in(_STDERR, writer, stderr)
        if isinstance(stdout, io.TextIOWrapper) and stdout is sys.__stdout__ and is_read(_STDOUT):
            sys.stdout = _stand_in(_STDOUT, LineWriter(open_output(_STDOUT)), stdout)
    return LineHandler(_writers[_STDERR], stderr.encoding)


def dropped_lines() -> int:
    """The number of this process's lines that were dropped, since the reader did not read them."""
    return sum(each.dropped for each in _writers.values())


class _Lines(io.RawIOBase):
    """The raw file of a stand-in, whose text becomes lines of a LineWriter."""

    def __init__(self, descriptor: int, writer: LineWriter) -> None:
        self._descriptor = descriptor
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # a TextIOWrapper gives bytes
        self._writer.put(bytes(data))
        return len(data)

    def fileno(self) -> int:
        return self._descriptor


class _StandIn(io.TextIOWrapper):
    """A text stream in the place of a standard stream, which passes on complete lines."""


def _stand_in(descriptor: int, writer: LineWriter, stream: io.TextIOWrapper) -> _StandIn:
    _writers[descriptor] = writer
    stream.flush()
    lines = cast("Any", _Lines(descriptor, writer))  # the typed interface asks for a buffer's names, which none reads
    return _StandIn(lines, stream.encoding, "backslashreplace", line_buffering=True)
