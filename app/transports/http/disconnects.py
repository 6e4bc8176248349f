"""Cancels ASGI requests whose client has disconnected.

uvicorn does not cancel a request when its client disconnects: only `receive()` returns `http.disconnect`. Waiting for
it costs a task, and nearly every request is answered before that pays. So pending requests are only recorded, and one
timer, which runs only while there are any, starts a `receive()` for each that is old enough.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from app.transports.http.asgi import Receive
from app.transports.http.replies import ClientGone


@dataclass(slots=True, eq=False, repr=False)
class _PendingReply:
    """A request that waits for its answer within a `with` block."""

    waiting: set[_PendingReply]
    task: asyncio.Task[Any]
    receive: Receive
    since: float
    listening: asyncio.Task[None] | None = None
    gone: bool = False

    def __enter__(self) -> None:
        self.waiting.add(self)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.waiting.discard(self)
        if self.listening is not None:
            self.listening.cancel()
        # Only our own cancellation becomes ClientGone. If the task was cancelled by others too, theirs goes on.
        if self.gone and not self.task.uncancel() and kind is asyncio.CancelledError:
            raise ClientGone

    async def listen(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.task.cancel()


class Disconnects:
    """Cancels requests whose client disconnected, at the earliest `patience_s` seconds after they began to wait."""

    def __init__(self, patience_s: float = 0.02) -> None:
        self._patience_s = patience_s
        self._waiting: set[_PendingReply] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, receive: Receive) -> _PendingReply:
        """A context whose block is cancelled when the client disconnects; it then raises ClientGone.

        Use it in a task, after the whole body was read.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("only a task can be cancelled")
        if self._timer is None:
            self._timer = loop.call_later(self._patience_s, self.tick)
        return _PendingReply(self._waiting, task, receive, loop.time())

    def tick(self) -> None:
        """Starts a `receive()` for each request that has waited long enough."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for waiting in self._waiting:
            if waiting.listening is None and now - waiting.since >= self._patience_s:
                waiting.listening = loop.create_task(waiting.listen(), name="wait for disconnect")
        self._timer = loop.call_later(self._patience_s, self.tick) if self._waiting else None
