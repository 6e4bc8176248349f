"""Messages between frontend and engine: MessagePack arrays back to back on a Unix socket, many in one write.

The first element is the kind, the others follow in the order below. A request refers to its call (model, signature,
outputs) by a number that DEFINE gave it, so each request carries a few numbers and its tensors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgpack


class MessageKind(IntEnum):
    """f: sent by the frontend, e: by the engine. tensor_messages.py says how a tensor is written."""

    #: f: call number, model id, signature, wanted outputs (none for all)
    DEFINE = 0
    #: f: request id, call number, deadline in monotonic seconds, priority, input tensors in the signature's order
    REQUEST = 1
    #: f: request id; its answer is no longer wanted
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
    #: e: what is served now, see catalog_snapshot.py
    CATALOG = 8
    #: e: reasons to restart, reasons to send no requests
    HEALTH = 9
    #: e: send FINISHED for everything counted so far, then SYNCED; every earlier message is handled by then
    SYNC = 10
    #: f
    SYNCED = 11
    #: both: offsets of blocks of shared memory that are no longer read
    FREE = 12


#: The first byte on a connection; the files of both shared memories come with it: requests, then answers.
HELLO = b"1"


class SendBuffer:
    """Collects the messages of one turn of the event loop and sends them in one write.

    Args:
        before_write: called before each write; messages that it puts go with it.
    """

    def __init__(self, transport: asyncio.WriteTransport, before_write: Callable[[], None]) -> None:
        self._transport = transport
        self._before_write = before_write
        self._loop = asyncio.get_running_loop()
        self._packer = msgpack.Packer(unicode_errors="surrogatepass")
        self._messages: list[bytes] = []
        self._scheduled = False

    def put(self, *message: Any) -> None:
        self._messages.append(self._packer.pack(message))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.write)

    def write(self) -> None:
        """Send at once what was put so far."""
        self._before_write()
        self._scheduled = False
        messages, self._messages = self._messages, []
        if not self._transport.is_closing():
            self._transport.write(b"".join(messages))


def new_unpacker() -> msgpack.Unpacker:
    """Takes bytes with `feed` and yields messages as tuples."""
    largest = 2**31 - 1
    return msgpack.Unpacker(
        use_list=False, max_buffer_size=largest, strict_map_key=False, unicode_errors="surrogatepass"
    )
