"""Cancels an ASGI request whose client has disconnected.

An ASGI server does not cancel a request when its client disconnects: only `receive()` returns `http.disconnect`. A wait
for it costs a task, and nearly every request is answered before that pays. So the task begins after a while.
"""

from __future__ import annotations

import asyncio

from app.transports.http.asgi import Receive
from app.transports.http.replies import ClientGone

#: Seconds after which a request is worth the task. Chosen.
_PATIENCE_S = 0.02


class ClientWatch:
    """A context whose block is cancelled when the client disconnects; it then raises ClientGone.

    To be used in a task, after the whole body was read.
    """

    def __init__(self, receive: Receive, patience_s: float = _PATIENCE_S) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can be cancelled")
        self._task = task
        self._receive = receive
        self._patience_s = patience_s
        self._timer: asyncio.TimerHandle
        self._listening: asyncio.Task[None] | None = None
        self._gone = False

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._listen_from_now)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._timer.cancel()
        if self._listening is not None:
            self._listening.cancel()
        # Only our own cancellation becomes ClientGone. If the task was cancelled by others too, theirs goes on.
        if self._gone and not self._task.uncancel() and kind is asyncio.CancelledError:
            raise ClientGone

    def _listen_from_now(self) -> None:
        self._listening = asyncio.get_running_loop().create_task(self._listen(), name="wait for disconnect")

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._task.cancel()
