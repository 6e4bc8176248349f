"""The check whether a client that stopped sending still waits for its reply, or has gone.

A client may end its side after its request and wait for the reply (`nc -N`). A client that has gone looks the same
until the server sends to it: then its kernel answers with a reset. So after a short wait the server sends a `100
Continue`, which every client of HTTP/1.1 skips (RFC 9110, section 15.2). If a reset comes back, the connection is
aborted, which cancels its requests.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from app.transports.http1.status_lines import CONTINUE

#: Seconds from the client's end of sending to the `100 Continue`. Chosen: most replies are written by then. Until a
#: client is known to have gone, its requests stay in the queue, where other requests may be rejected for them.
_ASK_S = 0.01

#: Seconds until the first look for a reset, and the most between two looks. Each pause is twice the one before, so a
#: client that has gone is found after two round trips at most. Chosen.
_FIRST_LOOK_S, _LOOK_S = 0.001, 0.25


class HalfClosed:
    """Finds out whether a client that stopped sending has gone; then its connection is aborted.

    Args:
        may_ask: says whether an interim response may be sent now.
    """

    def __init__(self, transport: asyncio.Transport, may_ask: Callable[[], bool]) -> None:
        self._transport = transport
        self._may_ask = may_ask
        self._asked = False
        self._next_look_s = _FIRST_LOOK_S
        self._timer = asyncio.get_running_loop().call_later(_ASK_S, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if not self._asked and self._may_ask():
            self._asked, self._next_look_s = True, _FIRST_LOOK_S
            self._transport.write(CONTINUE)
        elif was_reset(self._transport):
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(self._next_look_s, self._look)
        self._next_look_s = min(_LOOK_S, 2 * self._next_look_s)


def was_reset(transport: asyncio.Transport) -> bool:
    """Has the client's kernel answered with a reset? The event loop does not report it while reading is paused."""
    connection = transport.get_extra_info("socket")
    return connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
