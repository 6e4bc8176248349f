"""Where frontends come in: the engine's side of all connections."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.core.errors import ServingError
from app.core.events import RequestFinished
from app.core.interfaces import ServedModel
from app.frontends.channel.arena import ReadingArena, WritingArena
from app.frontends.channel.messages import HELLO, Kind
from app.frontends.channel.snapshot import Snapshot, take_snapshot
from app.frontends.engine.frontend_connection import FrontendLink
from app.server.server import Server

logger = logging.getLogger(__name__)

#: How often what is served and how it goes is looked at.
_LOOK_S = 0.25

#: A frontend that is busy for longer does not hold up the others.
_SEEN_WITHIN_S = 5.0

#: A frontend introduces itself at once; whoever does not is none.
_HELLO_WITHIN_S = 5.0


class Door:
    """Shows frontends what `server` serves, takes their requests and answers their queries.

    A version that leaves the catalog is unloaded only when every frontend has seen that, so whatever they resolved
    before is still answered by it.
    """

    def __init__(self, server: Server) -> None:
        self.models: dict[int, ServedModel] = {}
        self.links: set[FrontendLink] = set()
        self._server = server
        self._ids: dict[ServedModel, int] = {}
        self._last_id = 0
        self._snapshot = Snapshot(False, "", (), {}, {}, {}, ())
        self._accepting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self._queries: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "metrics": self._metrics,
            "summary": server.summary,
            "explain batching": self._explain_batching,
            "tune batching": self._tune_batching,
            "statistics": server.open_inference.model_statistics,
            "load": server.repository.load,
            "unload": server.repository.unload,
        }
        server.repository.mirrored = self.mirrored

    # --- life ---

    def open(self, listener: socket.socket) -> None:
        """Lets frontends in from now on."""
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept_all(listener), name="accept frontends")
        self._look()

    async def close(self, timeout_s: float) -> None:
        """Waits until every frontend is gone; those that are not by then are left behind."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        if self.links:
            logger.warning("%d frontends are still there", len(self.links))
        if self._accepting is not None:
            self._accepting.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _accept_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            try:
                await self._let_in(connection)
            except OSError as error:
                logger.warning("A frontend could not be let in: %s", error)
                connection.close()

    async def _let_in(self, connection: socket.socket) -> None:
        """Raises OSError where it is no frontend, or gone again."""
        connection.settimeout(_HELLO_WITHIN_S)
        hello, files, _, _ = await asyncio.to_thread(socket.recv_fds, connection, len(HELLO), 2)
        try:
            if hello != HELLO or len(files) != 2:
                raise OSError("it did not introduce itself")
            link = FrontendLink(self, ReadingArena(files[0]), WritingArena(files[1]))
        finally:
            for file in files:
                os.close(file)
        connection.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: link, connection)

    def joined(self, link: FrontendLink) -> None:
        self.publish()
        self.links.add(link)
        self._empty.clear()
        link.tell(Kind.CATALOG, *self._snapshot)
        link.tell(Kind.HEALTH, self._server.dead(), self._server.unready())

    def left(self, link: FrontendLink) -> None:
        self.links.discard(link)
        if not self.links:
            self._empty.set()

    # --- what frontends see ---

    def publish(self) -> None:
        """Tells what is served, where that changed, and how it goes."""
        snapshot = self._take_snapshot()
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self._tell_all(Kind.CATALOG, *snapshot)
        self._tell_all(Kind.HEALTH, self._server.dead(), self._server.unready())

    async def mirrored(self) -> None:
        """Returns when every frontend has seen the catalog as it is now, and told what it counted until then."""
        self.publish()
        gone = self.models.keys() - self._snapshot.described.keys()
        if self.links:
            await asyncio.wait([link.see() for link in self.links], timeout=_SEEN_WITHIN_S)
        for number in gone & self.models.keys():
            del self._ids[self.models.pop(number)]

    def _take_snapshot(self) -> Snapshot:
        repository = self._server.repository
        catalog = repository.catalog
        return take_snapshot(catalog, repository.known_names(), self._id, self._runs_alone)

    def _runs_alone(self, name: str) -> bool:
        with suppress(ServingError):  # its last version is just leaving
            return self._server.engine.batching_options(name).max_batch_size == 1
        return False

    def _id(self, model: ServedModel) -> int:
        number = self._ids.get(model)
        if number is None:
            self._last_id = number = self._last_id + 1
            self._ids[model] = number
            self.models[number] = model
        return number

    def _tell_all(self, kind: Kind, *message: Any) -> None:
        for link in self.links:
            link.tell(kind, *message)

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
        self.publish()

    # --- what frontends ask ---

    async def query(self, name: str, arguments: Sequence[Any]) -> Any:
        """Raises ServingError."""
        return await self._queries[name](*arguments)

    async def _metrics(self) -> tuple[bytes, str]:
        """Of all frontends together."""
        await self.mirrored()
        return await self._server.metrics()

    async def _explain_batching(self, model: str) -> Mapping[str, Any]:
        """With what all frontends answered."""
        await self.mirrored()
        return await self._server.explain_batching(model)

    async def _tune_batching(self, model: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """What all frontends answered before counts as before; what they send afterwards is sent as asked."""
        await self.mirrored()
        options = await self._server.tune_batching(model, changes)
        await self.mirrored()
        return options

    def finished(self, labels: tuple[str, str, str, int, str], seconds: Sequence[float]) -> None:
        """A frontend answered requests."""
        for each in seconds:
            self._server.listener(RequestFinished(*labels, each))
