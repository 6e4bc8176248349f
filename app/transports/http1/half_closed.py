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

#: Seconds after its end of sending at which a client is asked whether it is there. Chosen: most replies are there by
#: then, and a client that has gone keeps nobody waiting for long: meanwhile its requests wait, others are rejected for
#: them, and each step of a pipeline brings the next.
_ASK_S = 0.01

#: Seconds until the first look for a reset, which takes a round trip, and at most between looks: each waits twice as
#: long as the one before, so a client that has gone is known after two round trips at most. Chosen.
_FIRST_LOOK_S, _LOOK_S = 0.001, 0.25


class HalfClosed:
    """Finds out whether a client that stopped sending has gone; then its connection is aborted.

    Args:
        may_ask: may an interim response be sent now?
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
    """Has the client's kernel answered with a reset? Nothing tells so while the connection is not read."""
    connection = transport.get_extra_info("socket")
    return connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
