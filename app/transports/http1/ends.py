"""How a connection ends: the last reply is read, and a client that only stopped sending gets its reply.

- **Lingering.** If a socket is closed while bytes of the client are unread, the kernel sends a reset, and the client
  loses the reply that it has not read. So after a reply to a request that was not read to its end, our side alone is
  closed, and what arrives is thrown away until the client closes too, as RFC 9112 (section 9.6) says; at most 256 MiB,
  30 s, and 5 s of silence. The event loop does not read it: each connection is looked at now and then, what waits there
  is dropped in the kernel (MSG_TRUNC, tcp(7)), and all of them together get a tenth of a core. Read like requests, the
  rejected bodies of 200 clients made each turn of the event loop some 20 ms longer.
- **Half-closed clients.** A client may end its side after its request and wait for the reply (`nc -N`). One that has
  gone looks the same until something is sent to it: then its kernel answers with a reset. So a client that waits for
  longer is sent a `100 Continue`, which every client of HTTP/1.1 skips (RFC 9110, section 15.2), and if a reset comes
  back, its request is cancelled.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from collections.abc import Callable
from typing import ClassVar

from app.transports.http1.status_lines import CONTINUE

#: Bounds of lingering (30 s and 5 s are nginx's; the bytes are chosen: four of the largest bodies, by default).
_LINGER_S, _SILENCE_S, _LINGER_BYTES = 30.0, 5.0, 256 * 1024**2

#: What a look costs, and each byte that it drops, with what the kernel does for its arrival (chosen; 10 us, and 130 us
#: for a MiB without that, were measured); the part of a core for all.
_LOOK_COST_S, _BYTE_COST_S, _SHARE = 10e-6, 500e-6 / 1024**2, 0.1

#: Seconds between two looks at one connection, and about what the kernel keeps of it meanwhile: no client sends more
#: than that between two looks (chosen).
_LEAST_PAUSE_S, _MOST_PAUSE_S, _KEPT_BYTES = 0.005, 1.0, 128 * 1024

#: Nothing is written here where the kernel knows MSG_TRUNC.
_DROPPED = bytearray(4 * 1024**2)

#: Seconds after its end of sending at which a client is asked whether it is there, and between looks (chosen).
_ASK_S, _LOOK_S = 0.25, 0.25


class Lingering(asyncio.Protocol):
    """Throws away what the client still sends after the last reply, which was written before.

    Args:
        lost: called with the transport's error when the connection has ended.
    """

    _open: ClassVar = 0  # in this process

    def __init__(self, transport: asyncio.Transport, lost: Callable[[Exception | None], None]) -> None:
        self._transport = transport
        self._lost = lost
        self._bytes = 0
        self._loop = asyncio.get_running_loop()
        self._ends_s = self._loop.time() + _LINGER_S
        self._silent_s = self._loop.time() + _SILENCE_S
        Lingering._open += 1
        transport.set_protocol(self)
        transport.pause_reading()
        transport.write_eof()
        if not transport.is_closing():
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT_BYTES)
        self._timer: asyncio.Handle = self._loop.call_soon(self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        Lingering._open -= 1
        self._timer.cancel()
        self._lost(exc)

    def _look(self) -> None:
        if self._transport.is_closing():  # another connection may have its descriptor
            return

        # 1. What has arrived is dropped.
        dropped = _drop(self._transport)
        now = self._loop.time()
        if dropped:
            self._bytes += dropped
            self._silent_s = now + _SILENCE_S

        # 2. The client has closed, or sends for too long.
        if dropped is None or self._bytes > _LINGER_BYTES or now >= min(self._ends_s, self._silent_s):
            self._transport.abort()
            return

        # 3. The next look.
        cost_s = _LOOK_COST_S + dropped * _BYTE_COST_S
        pause_s = min(max(_LEAST_PAUSE_S, Lingering._open * cost_s / _SHARE), _MOST_PAUSE_S)
        self._timer = self._loop.call_later(pause_s, self._look)


def _drop(transport: asyncio.Transport) -> int | None:
    """How many bytes were dropped; None if no more will come."""
    connection = transport.get_extra_info("socket")
    with socket.socket(connection.family, connection.type, fileno=connection.fileno()) as same:
        try:
            return same.recv_into(_DROPPED, 0, socket.MSG_TRUNC) or None
        except BlockingIOError:
            return 0
        except OSError:
            return None
        finally:
            same.detach()  # the transport closes it


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


def is_unread(transport: asyncio.Transport) -> bool:
    """Has the client sent bytes that the event loop has not seen?"""
    connection = transport.get_extra_info("socket")
    if connection is None or transport.is_closing():
        return False
    return any(fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)))  # how many, as an int of C


def was_reset(transport: asyncio.Transport) -> bool:
    """Has the client's kernel answered with a reset? Nothing tells so while the connection is not read."""
    connection = transport.get_extra_info("socket")
    return connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
