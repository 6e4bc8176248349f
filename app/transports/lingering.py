"""How a connection ends so that its client can read the last reply, over HTTP/1.1 and HTTP/2.

If a socket is closed while bytes of the client are unread, or if some come afterwards, the kernel answers with a reset
and drops the unsent rest of the reply: the client loses it. Over HTTP/2 every client that reads a long reply
sends such bytes: it opens its windows (RFC 9113, section 6.9). So only our side is closed, and bytes that arrive are
thrown away until the client closes too, as RFC 9112 (section 9.6) says. The connection ends after 256 MiB, after 5 s of
silence once the client's kernel has the reply, or after 30 s and a second for each 16 KiB of the reply that its kernel
lacked at first.

The event loop does not read those bytes. It looks at each lingering connection now and then and drops what waits in the
kernel (MSG_TRUNC, tcp(7)); all lingering connections together get a tenth of a core. Read like requests, the rejected
bodies of 200 clients made each turn of the event loop some 20 ms longer. Under TLS, too, arriving bytes are dropped in
the kernel, without decryption.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from collections.abc import Callable
from math import inf
from sys import byteorder
from typing import ClassVar
from weakref import WeakKeyDictionary

#: Bounds of lingering (30 s and 5 s are nginx's; the bytes are chosen: four of the largest bodies, by default).
_LINGER_S, _SILENCE_S, _LINGER_BYTES = 30.0, 5.0, 256 * 1024**2

#: A client has a second more for each so many bytes that its kernel lacks of the reply when lingering begins. Chosen:
#: as min_body_bytes_per_s by default.
_LEAST_BYTES_PER_S = 16 * 1024

#: Seconds that count for a look, and for each byte that it drops; the part of a core for all lingering connections.
#: Chosen: 10 us and 130 us a MiB were measured, without the kernel's work for arriving bytes.
_LOOK_COST_S, _BYTE_COST_S, _SHARE = 10e-6, 500e-6 / 1024**2, 0.1

#: The least and the most seconds between two looks at a connection, and about how many bytes the kernel keeps
#: meanwhile: no client sends more than that between two looks (chosen).
_LEAST_PAUSE_S, _MOST_PAUSE_S, _KEPT_BYTES = 0.005, 1.0, 128 * 1024

#: What `recv_into` asks for: its size bounds a look. A kernel with MSG_TRUNC writes nothing into it.
_DROPPED = bytearray(4 * 1024**2)


class Lingering(asyncio.Protocol):
    """The protocol of a connection after its last reply: it throws away what the client still sends.

    Args:
        lost: called with the transport's error when the connection has ended.
    """

    _open: ClassVar = WeakKeyDictionary[asyncio.AbstractEventLoop, int]()  # lingering connections of each event loop

    def __init__(self, transport: asyncio.Transport, lost: Callable[[Exception | None], None]) -> None:
        self._transport = transport
        self._lost = lost
        self._bytes = 0
        self._client_ended = False  # the client sends no more, and may still read
        self._loop = asyncio.get_running_loop()
        self._open[self._loop] = self._open.get(self._loop, 0) + 1
        transport.set_protocol(self)
        transport.pause_reading()
        self._end_sending()
        now = self._loop.time()
        self._silence_s = _SILENCE_S  # a length
        self._silent_s = now + _SILENCE_S  # a time: silence until then ends the connection; so is _ends_s
        self._ends_s = now + _LINGER_S + self._untaken() / _LEAST_BYTES_PER_S
        self._timer: asyncio.Handle = self._loop.call_soon(self._look)

    def hasten(self) -> None:
        """From now on the connection ends as soon as the client's kernel has all of the reply."""
        self._silence_s, self._silent_s = 0.0, -inf

    def connection_lost(self, exc: Exception | None) -> None:
        self._open[self._loop] -= 1
        self._timer.cancel()
        self._lost(exc)

    def _end_sending(self) -> None:
        try:
            self._transport.write_eof()
        except OSError:  # the client has reset the connection
            self._transport.abort()
        if not self._transport.is_closing():
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT_BYTES)

    def _look(self) -> None:
        if self._transport.is_closing():  # another connection may have its descriptor
            return

        # 1. Drop the bytes that have arrived. Until the client's kernel has all of the reply, silence does not count.
        dropped = self._drop()
        left = self._untaken()
        now = self._loop.time()
        self._bytes += dropped
        if dropped or left:
            self._silent_s = now + self._silence_s

        # 2. Abort: the client has closed and the kernel has the rest of the reply, or a limit is reached.
        closed = self._client_ended and not self._transport.get_write_buffer_size()
        if closed or self._bytes > _LINGER_BYTES or now >= self._ends_s:
            self._transport.abort()
            return
        if now >= self._silent_s and not left:
            self._transport.abort()
            return

        # 3. The next look.
        cost_s = _LOOK_COST_S + dropped * _BYTE_COST_S
        pause_s = min(max(_LEAST_PAUSE_S, self._open[self._loop] * cost_s / _SHARE), _MOST_PAUSE_S)
        self._timer = self._loop.call_later(pause_s, self._look)

    def _drop(self) -> int:
        """Drops the client's bytes that wait in the kernel; returns how many, and notes whether the client ended."""
        dropped = None if self._client_ended else _drop(self._transport)
        self._client_ended = dropped is None
        return dropped or 0

    def _untaken(self) -> int:
        """Bytes of the reply that the client's kernel does not have."""
        return 0 if self._transport.is_closing() else untaken(self._transport)

    def __repr__(self) -> str:
        return f"<Lingering {self._bytes} bytes dropped, {self._untaken()} not taken>"


def _drop(transport: asyncio.Transport) -> int | None:
    """Drops the client's bytes that wait in the kernel, at most 4 MiB; returns how many, None if no more will come."""
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


def untaken(transport: asyncio.Transport) -> int:
    """Bytes of a reply that the client's kernel does not have, where the socket is open.

    They wait in the transport, or in this kernel until the client's acknowledges them (tcp(7), SIOCOUTQ).

    Raises:
        OSError: the socket is closed, on uvloop. On asyncio's own loop a closed socket raises ValueError, but a socket
            is open there while the transport is not closing or bytes wait in it: callers look at one of these first.
    """
    connection = transport.get_extra_info("socket")
    unsent = bytes(4) if connection is None else fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return transport.get_write_buffer_size() + int.from_bytes(unsent, byteorder)


def is_unread(transport: asyncio.Transport) -> bool:
    """Has the client sent bytes that the event loop has not seen?"""
    connection = transport.get_extra_info("socket")
    if connection is None or transport.is_closing():
        return False
    return any(fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)))  # how many, as an int of C
