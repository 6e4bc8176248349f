"""A client that stops sending may wait for its reply, or have gone.

A client may end its side after its request and wait for the reply (`nc -N`). One that has gone looks the same until
something is sent to it: then its kernel answers with a reset. So a client that waits for longer is sent a `100
Continue`, which every client of HTTP/1.1 skips (RFC 9110, section 15.2), and if a reset comes back, its request is
cancelled.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from app.transports.http1.status_lines import CONTINUE

#: Seconds after its end of sending at which a client is asked whether it is there, and between looks. Chosen: the first
#: look comes soon, since a reset takes a round trip: meanwhile its requests wait, and others are rejected for them.
_ASK_S, _FIRST_LOOK_S, _LOOK_S = 0.25, 0.05, 0.25


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
        next_s = _LOOK_S
        if not self._asked and self._may_ask():
            self._asked, next_s = True, _FIRST_LOOK_S
            self._transport.write(CONTINUE)
        elif was_reset(self._transport):
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(next_s, self._look)


def was_reset(transport: asyncio.Transport) -> bool:
    """Has the client's kernel answered with a reset? Nothing tells so while the connection is not read."""
    connection = transport.get_extra_info("socket")
    return connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
