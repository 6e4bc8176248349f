"""Messages between the server and a process that reads long bodies.

A message is a pickle and the content of its arrays and buffers. The content travels beside the pickle: sending and
receiving it does not keep the GIL. Both ends are Ferry.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from app.core.inference import STRING, Array, Buffer

_HEAD = struct.Struct("!QI")
_SIZE = struct.Struct("!Q")

#: Strings that one step makes. Chosen.
_SLICE = 1 << 14


class Channel:
    """One end of a connection.

    Args:
        time_left: seconds that a step may take; None for any time.

    Raises (its methods):
        TimeoutError: the time is over.
        OSError, EOFError: the other end is gone.
    """

    def __init__(self, connection: socket.socket, time_left: Callable[[], float | None] = lambda: None) -> None:
        self._connection = connection
        self.time_left = time_left

    def send(self, content: object) -> None:
        buffers: list[memoryview[int]] = []
        pickled = _pickled(content, lambda buffer: buffers.append(buffer.raw()))
        sizes = b"".join([_SIZE.pack(buffer.nbytes) for buffer in buffers])
        self._send(_HEAD.pack(len(pickled), len(buffers)) + sizes + pickled)
        for buffer in buffers:
            self._send(buffer)

    def receive(self) -> Any:
        length, count = _HEAD.unpack(self._exactly(_HEAD.size))
        sizes = [size for (size,) in _SIZE.iter_unpack(self._exactly(count * _SIZE.size))]
        pickled = self._exactly(length)
        return pickle.loads(pickled, buffers=[self._exactly(size) for size in sizes])  # noqa: S301 - from Ferry

    def _send(self, part: Buffer) -> None:
        self._limit()
        self._connection.sendall(part)

    def _exactly(self, size: int) -> memoryview:
        view = np.empty(size, np.uint8).data
        got = 0
        while got < size:
            self._limit()
            more = self._connection.recv_into(view[got:])
            if not more:
                raise EOFError("The other end is gone")
            got += more
        return view

    def _limit(self) -> None:
        left = self.time_left()
        if left is not None and left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)

    def close(self) -> None:
        self._connection.close()


class _Pickler(pickle.Pickler):
    """Views of bytes travel beside the pickle, too.

    Strings travel as their lengths and one text: a pickle of millions of them would be read in one call."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == STRING:
            strings = value.reshape(-1).tolist()
            ends = np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)))
            return _strings, (ends, pickle.PickleBuffer(b"".join(strings)), value.shape)
        if type(value) is memoryview:
            return _unchanged, (pickle.PickleBuffer(value),)
        return NotImplemented


def _pickled(content: object, keep: Callable[[pickle.PickleBuffer], object]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=keep).dump(content)
    return file.getvalue()


def _unchanged(view: memoryview) -> memoryview:
    return view


def _strings(ends: Array, text: memoryview, shape: tuple[int, ...]) -> Array:
    """Made in steps, between which other threads run."""
    array = np.empty(len(ends), STRING)
    start = 0
    for first in range(0, len(ends), _SLICE):
        stops = ends[first : first + _SLICE].tolist()
        starts = [start, *stops[:-1]]
        array[first : first + _SLICE] = [bytes(text[a:b]) for a, b in zip(starts, stops, strict=True)]
        start = stops[-1]
    return array.reshape(shape)
