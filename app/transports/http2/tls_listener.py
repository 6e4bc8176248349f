"""Accepts connections with TLS. One counts from when it is accepted: a handshake that never ends holds as much as it.

An event loop's own servers tell nobody of a connection before its handshake has ended, so anybody could open as many as
there are descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from app.transports.http2.protocol import Connections, Http2Protocol

logger = logging.getLogger(__name__)

#: Of a handshake. Chosen: no timer is longer.
_MOST_HANDSHAKE_S = 600.0

#: Chosen, as asyncio does: where no descriptor is left, accepting is tried again after this long.
_RETRY_S = 1.0


class TlsListener:
    """Listens on a bound socket from `start` to `close`."""

    def __init__(self, shared: Connections, context: ssl.SSLContext, bound: socket.socket) -> None:
        self._shared = shared
        self._context = context
        self._bound = bound
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def sockets(self) -> tuple[socket.socket]:
        """As those of an asyncio.Server."""
        return (self._bound,)

    def start(self, backlog: int) -> None:
        self._bound.setblocking(False)
        self._bound.listen(backlog)
        self._run(self._accept(), self._ended)

    def close(self) -> None:
        """Handshakes that go on end, too."""
        for each in list(self._tasks):
            each.cancel()

    def _ended(self, accepting: asyncio.Task[None]) -> None:
        self._tasks.discard(accepting)
        self._bound.close()  # not before: the event loop watches it until then

    def _run(self, work: Coroutine[Any, Any, None], done: Callable[[asyncio.Task[None]], None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)

    async def _accept(self) -> None:
        """One connection in a turn of the event loop."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._bound)
            except OSError as error:
                logger.warning("No connection of TLS can be accepted: %s; next try in %g s", error, _RETRY_S)
                await asyncio.sleep(_RETRY_S)
                continue
            if self._shared.full:
                accepted.close()
            else:
                self._shared.arriving += 1
                self._run(self._shake_hands(accepted), partial(self._arrived, accepted))
            await asyncio.sleep(0)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        timeout_s = min(self._shared.times.handshake_s, _MOST_HANDSHAKE_S)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(Http2Protocol, self._shared), accepted, ssl=self._context, ssl_handshake_timeout=timeout_s
            )
        except OSError as error:  # what the client sent, or that it sent nothing; errors of TLS are of this class
            logger.debug("A handshake of TLS failed: %s", error)

    def _arrived(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._shared.arriving -= 1
        if task.cancelled():  # perhaps before it began
            accepted.close()

    def __repr__(self) -> str:
        return f"<TlsListener {self._shared.arriving} handshakes, {self._shared!r}>"
