"""Messages between frontend and engine: MessagePack arrays back to back on a Unix socket, many in one write.

The first element is the kind, the others follow in the order below. A request refers to its call (model, signature,
outputs) by a number that DEFINE gave it, so each request carries a few numbers and its tensors.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from enum import IntEnum
from itertools import count
from typing import Any, cast

import msgpack

from app.config.topics.batching import DEFAULT_MAX_INLINE_MS
from app.core.events import (
    ConnectionsRejected,
    CredentialsLoaded,
    Event,
    LogLinesDropped,
    RequestsDenied,
    RequestsFinished,
    RequestsRefused,
    RequestTraced,
)
from app.frontends.channel.shared_memory import SharedMemoryReader
from app.transports.fairness.fair_queue import Share
from app.transports.fairness.turns import Turns


class MessageKind(IntEnum):
    """f: sent by the frontend, e: by the engine. tensor_messages.py says how a tensor is written."""

    #: f: call number, model id, signature, wanted outputs (none for all)
    DEFINE = 0
    #: f: request id, call number, deadline in monotonic seconds, priority, caller, rows of each coalesced request
    #: (empty: a single request), inputs in the signature's order. A coalesced message has the first id; its requests
    #: have the ids that follow
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
    #: f: name of one of EVENTS that the engine counts, and its fields
    EVENT = 7
    #: e: what is served now, a CatalogSnapshot as a pickle
    CATALOG = 8
    #: e: reasons to restart, reasons to send no requests
    HEALTH = 9
    #: e: send an EVENT for everything counted so far, then SYNCED; every earlier message is handled by then
    SYNC = 10
    #: f
    SYNCED = 11
    #: both: offsets of blocks of shared memory that are no longer read
    FREE = 12
    #: e: id of a coalesced message; each of its requests is answered by its own id
    APART = 13
    #: f: the frontend sends no more requests
    DRAINING = 14
    #: f: name of a caller, and its weight
    WEIGH = 15


#: The types of events that frontends tell the engine, by name.
EVENTS: Mapping[str, Callable[..., Event]] = {
    kind.__name__: kind
    for kind in (
        ConnectionsRejected, CredentialsLoaded, LogLinesDropped, RequestsDenied, RequestsFinished, RequestsRefused,
        RequestTraced,
    )
}  # fmt: skip

#: Chosen: requests are coalesced if calls take less, since their rows can wait so long for each other without notice.
QUICK_S = DEFAULT_MAX_INLINE_MS / 1e3

#: Messages that are handled in any case, and between two looks at the clock. Chosen.
_SLICE = 4

#: Each connection is a peer of its own.
_numbers = count()

#: The first byte on a connection; the files of both shared memories come with it: requests, then answers.
HELLO = b"1"


class MessageConnection(asyncio.Protocol):
    """One end of a connection. It sends the messages of one turn of the event loop in one write.

    Args:
        incoming: shared memory of the other end's tensors; blocks that are no longer read are freed with each write.
    """

    #: By kind of message; called with the elements behind the kind.
    _handlers: Mapping[int, Callable[..., Any]]
    _transport: asyncio.Transport

    #: The last call took a moment. Then this process yields its core to processes that wait for it, and messages that
    #: arrive meanwhile are handled together. With two frontends on two cores a request took 13 % less CPU (measured,
    #: docs/architecture.md). While calls take long it does not yield.
    quick = False

    def __init__(self, incoming: SharedMemoryReader) -> None:
        self._incoming = incoming
        self._loop = asyncio.get_running_loop()
        self._unpacker = new_unpacker()
        self._packer = msgpack.Packer(unicode_errors="surrogatepass")
        self._unsent: list[bytes] = []
        self._write_scheduled = False
        self._turns = Turns.of_loop()
        self._share = Share(f"the other end {next(_numbers)}")

    def send(self, *message: Any) -> None:
        """Send a message: its kind, and what MessageKind says."""
        self._unsent.append(self._packer.pack(message))
        if not self._write_scheduled:
            self._write_scheduled = True
            self._loop.call_soon(self.write)

    def write(self) -> None:
        """Write all messages that were sent so far, without waiting for the end of the turn."""
        if unused := self._incoming.take_unused():
            self.send(MessageKind.FREE, unused)
        self._write_scheduled = False
        messages, self._unsent = self._unsent, []
        if not self._transport.is_closing():
            self._transport.write(b"".join(messages))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Messages of the other end that were not handled are dropped."""
        self._turns.forget(self._share)

    def data_received(self, data: bytes) -> None:
        self._unpacker.feed(data)
        if not self._turns.waits(self._share):
            self._read()

    def _read(self) -> None:
        """Handles messages for as long as it is this end's turn (fairness/turns.py), and the rest in the next one."""
        handlers, turns = self._handlers, self._turns
        began_s = turns.clock()
        end_s = turns.began(self._share, began_s)
        for number, message in enumerate(self._unpacker):
            handlers[message[0]](*message[1:])
            if number % _SLICE == _SLICE - 1 and turns.clock() >= end_s:
                self._transport.pause_reading()
                turns.later(self._share, self._read_on, again=True)
                break
        turns.ended(self._share, began_s)
        if self.quick:
            os.sched_yield()

    def _read_on(self) -> None:
        self._read()
        if not (self._turns.waits(self._share) or self._transport.is_closing()):
            self._transport.resume_reading()


def new_unpacker() -> msgpack.Unpacker:
    """Takes bytes with `feed` and yields messages as tuples."""
    largest = 2**31 - 1
    return msgpack.Unpacker(
        use_list=False, max_buffer_size=largest, strict_map_key=False, unicode_errors="surrogatepass"
    )
