"""How a connection ends: the last reply is read, and a client that only stopped sending gets its reply.

- **Lingering.** If a socket is closed while bytes of the client are unread, the kernel sends a reset, and the client
  loses the reply that it has not read. So after a reply to a request that was not read to its end, our side alone is
  closed, and what arrives is thrown away until the client closes too, as RFC 9112 (section 9.6) says; at most 256 MiB,
  30 s, and 5 s of silence. All connections together are read at a bounded rate then: rejecting a body would cost the
  server as much as taking it otherwise, and who sends many of them as quickly as they are rejected would be served so.
- **Half-closed clients.** A client may end its side after its request and wait for the reply (`nc -N`). One that has
  gone looks the same until something is sent to it: then its kernel answers with a reset. So a client that waits for
  longer is sent a `100 Continue`, which every client of HTTP/1.1 skips (RFC 9110, section 15.2), and if a reset comes
  back, its request is cancelled.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from math import inf
from typing import ClassVar

from app.transports.http1.status_lines import CONTINUE

#: Bounds of lingering (30 s and 5 s are nginx's; the bytes are chosen: four of the largest bodies, by default).
_LINGER_S, _SILENCE_S, _LINGER_BYTES = 30.0, 5.0, 256 * 1024**2

#: What is thrown away in a second, by all connections of the process, and what may be at once: two of the largest
#: bodies, by default. Chosen: some 2 % of a core.
_LINGER_BYTES_PER_S, _LINGER_BURST_BYTES = 32 * 1024**2, 128 * 1024**2

#: Seconds after its end of sending at which a client is asked whether it is there, and between looks (chosen).
_ASK_S, _LOOK_S = 0.25, 0.25


class _Pace:
    """When may more be read, of so many bytes a second?"""

    def __init__(self) -> None:
        self._full_s = -inf  # when all that was read is paid for

    def wait_s(self, size: int, now: float) -> float:
        """Seconds to wait after `size` bytes were read."""
        self._full_s = max(self._full_s, now) + size / _LINGER_BYTES_PER_S
        return max(0.0, self._full_s - now - _LINGER_BURST_BYTES / _LINGER_BYTES_PER_S)


class Lingering(asyncio.Protocol):
    """Throws away what the client still sends after the last reply, which was written before.

    Args:
        lost: called with the transport's error when the connection has ended.
    """

    _pace: ClassVar = _Pace()  # of this process

    def __init__(self, transport: asyncio.Transport, lost: Callable[[Exception | None], None]) -> None:
        self._transport = transport
        self._lost = lost
        self._bytes = 0
        self._loop = asyncio.get_running_loop()
        self._ends_s = self._loop.time() + _LINGER_S
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(_SILENCE_S, self._close_if_silent)
        self._paused: asyncio.TimerHandle | None = None
        transport.set_protocol(self)
        transport.write_eof()
        transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        self._heard_s = self._loop.time()
        if self._bytes > _LINGER_BYTES:
            self._transport.abort()
        elif wait_s := self._pace.wait_s(len(data), self._heard_s):
            self._transport.pause_reading()
            self._paused = self._loop.call_later(wait_s, self._resume)
            self._heard_s += wait_s  # until then the silence is ours

    def _resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if self._paused is not None:
            self._paused.cancel()
        self._lost(exc)

    def _close_if_silent(self) -> None:
        now = self._loop.time()
        rest_s = min(self._ends_s, self._heard_s + _SILENCE_S) - now
        if rest_s > 0:
            self._timer = self._loop.call_later(rest_s, self._close_if_silent)
        else:
            self._transport.abort()


class HalfClosed:
    """Finds out whether a client that stopped sending has gone; then its connection is aborted.

    Args:
        may_ask: may an interim response be sent now?
    """

    def __init__(self, transport: asyncio.Transport, may_ask: Callable[[], bool]) -> None:
        self._transport = transport
        self._may_ask = may_ask
        self._asked = False
        self._timer = asyncio.get_running_loop().call_later(_ASK_S, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if not self._asked and self._may_ask():
            self._asked = True
            self._transport.write(CONTINUE)
        elif was_reset(self._transport):
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)


def was_reset(transport: asyncio.Transport) -> bool:
    """Has the client's kernel answered with a reset? Nothing tells so while the connection is not read."""
    connection = transport.get_extra_info("socket")
    return connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
