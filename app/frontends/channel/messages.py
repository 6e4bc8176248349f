"""How frontend and engine talk: MessagePack arrays back to back on a Unix socket, many of them in one write.

The first element says the kind, the others are in the order below. A request names its call by a number that
DEFINE gave to model, signature and outputs, so what travels with each is a few numbers and the tensors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgpack


class Kind(IntEnum):
    """f: sent by the frontend, e: by the engine. A tensor is as in tensors.py."""

    #: f: call number, model id, signature, outputs wanted (none for all)
    DEFINE = 0
    #: f: request id, call number, deadline in monotonic seconds, priority, input tensors in the signature's order
    REQUEST = 1
    #: f: request id; nobody waits for it any more
    CANCEL = 2
    #: e: request id, seconds in the queue, seconds of computing, rows of the batch, output tensors in order
    ANSWER = 3
    #: e: request or query id, kind of error, text, seconds until a retry
    ERROR = 4
    #: f: query id, its name, arguments
    QUERY = 5
    #: e: query id, result
    RESULT = 6
    #: f: (protocol, code, model, version, signature), and the seconds of each request that finished so
    FINISHED = 7
    #: e: what is served now, see snapshot.py
    CATALOG = 8
    #: e: reasons to restart, reasons to send nothing
    HEALTH = 9
    #: e: answer SEEN when everything before is taken in, and everything counted so far is told
    SEE = 10
    #: f
    SEEN = 11
    #: both: where the blocks of shared memory begin that are no longer read
    FREE = 12


#: The first byte of a connection, with which the files of both arenas come along: requests' first, then answers'.
HELLO = b"1"


class SendBuffer:
    """Collects messages and writes those of one turn of the event loop together.

    Args:
        before_write: called before each write; what it puts goes along.
    """

    def __init__(self, transport: asyncio.WriteTransport, before_write: Callable[[], None]) -> None:
        self._transport = transport
        self._before_write = before_write
        self._loop = asyncio.get_running_loop()
        self._packer = msgpack.Packer(unicode_errors="surrogatepass")
        self._messages: list[bytes] = []
        self._due = False

    def put(self, *message: Any) -> None:
        self._messages.append(self._packer.pack(message))
        if not self._due:
            self._due = True
            self._loop.call_soon(self.write)

    def write(self) -> None:
        """At once, what was put so far."""
        self._before_write()
        self._due = False
        messages, self._messages = self._messages, []
        if not self._transport.is_closing():
            self._transport.write(b"".join(messages))


def new_unpacker() -> msgpack.Unpacker:
    """To be fed with what was read; yields messages as tuples."""
    most = 2**31 - 1
    return msgpack.Unpacker(use_list=False, max_buffer_size=most, strict_map_key=False, unicode_errors="surrogatepass")
