"""Accepts frontends: the engine's side of all their connections."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.core.errors import ServingError
from app.core.events import Event
from app.core.interfaces import LoadOverrides, ServedModel
from app.frontends.channel.catalog_snapshot import CatalogSnapshot, take_snapshot
from app.frontends.channel.messages import HELLO, MessageKind
from app.frontends.channel.model_list import MODEL_LIST
from app.frontends.channel.shared_memory import SharedMemoryReader, SharedMemoryWriter
from app.frontends.engine.frontend_connection import FrontendConnection
from app.frontends.engine.messages_of_a_turn import MessagesOfATurn
from app.server.server import Server
from app.transports.waiting import wait_while

logger = logging.getLogger(__name__)

#: Chosen: how often the catalog is compared and health is sent.
_PUBLISH_EVERY_S = 0.25

#: Chosen, as asyncio does: where no descriptor is left, accepting is tried again after this long.
_RETRY_S = 1.0

#: Chosen: a frontend that is busy for longer does not delay the others.
_SYNC_WITHIN_S = 5.0

#: Chosen: a frontend sends HELLO at once; a connection without it is closed.
_HELLO_WITHIN_S = 5.0


class EngineListener:
    """Sends frontends the catalog of `server`, and answers their requests and queries.

    A version that leaves the catalog is unloaded only when every frontend knows: what a frontend resolved before is
    still answered by that version.
    """

    def __init__(self, server: Server) -> None:
        # The catalog, as frontends know it.
        self.models: dict[int, ServedModel] = {}
        self._server = server
        self._ids: dict[ServedModel, int] = {}
        self._last_id = 0
        self._snapshot = CatalogSnapshot()

        # The connections.
        self.connections: set[FrontendConnection] = set()
        self.together = MessagesOfATurn(time.monotonic)
        self._accepting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

        # The answers to frontends' queries, by name.
        self._queries: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "metrics": server.metrics,
            "summary": server.summary,
            "explain batching": server.explain_batching,
            "tune batching": self._tune_batching,
            "statistics": server.open_inference.model_statistics,
            "config": server.open_inference.model_config,
            "load": self._load,
            "unload": server.repository.unload,
            "reload": self._reload,
        }

        # Models are closed, and counts are shown, only when every frontend is up to date.
        server.repository.mirrored = server.pages.counted = self.mirrored

    # --- life ---

    def open(self, listener: socket.socket) -> None:
        """Accept frontends from now on."""
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept_all(listener), name="accept frontends")
        self._publish_regularly()

    async def drained(self, timeout_s: float) -> None:
        """Wait until every frontend has said that it sends no more requests, at most `timeout_s`."""
        end_s = asyncio.get_running_loop().time() + timeout_s
        await wait_while(lambda: not all(each.draining for each in self.connections), end_s)

    async def close(self, timeout_s: float) -> None:
        """Wait until every frontend has disconnected, at most `timeout_s`, and accept no more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        if self.connections:
            logger.warning("%d frontends are still connected; the engine ends without them", len(self.connections))
        if self._accepting is not None:
            self._accepting.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def _accept_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                logger.warning("No frontend can connect: %s; next try in %g s", error, _RETRY_S)
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                await self._connect(connection)
            except OSError as error:
                logger.warning("A connection to the engine was closed: %s", error)
                connection.close()
            except asyncio.CancelledError:  # the engine ends meanwhile
                connection.close()
                raise

    async def _connect(self, connection: socket.socket) -> None:
        """Raises OSError if it is not a frontend, or has disconnected."""
        connection.settimeout(_HELLO_WITHIN_S)
        hello, files, _, _ = await asyncio.to_thread(socket.recv_fds, connection, len(HELLO), 2)
        try:
            if hello != HELLO or len(files) != 2:
                raise OSError("it did not begin as a frontend does")
            frontend = FrontendConnection(self, SharedMemoryReader(files[0]), SharedMemoryWriter(files[1]))
        finally:
            for file in files:
                os.close(file)
        connection.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: frontend, connection)

    def connected(self, connection: FrontendConnection) -> None:
        self.publish()
        self.connections.add(connection)
        self._empty.clear()
        connection.send(MessageKind.CATALOG, pickle.dumps(self._snapshot))
        connection.send(MessageKind.HEALTH, *self._health())

    def disconnected(self, connection: FrontendConnection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    # --- the catalog ---

    def publish(self) -> None:
        """Send the catalog, if it changed, and the health to every frontend."""
        repository = self._server.repository
        snapshot = take_snapshot(repository.catalog, repository.known_names(), self._id, self._runs_alone)
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self._send_all(MessageKind.CATALOG, pickle.dumps(snapshot))
        self._send_all(MessageKind.HEALTH, *self._health())

    def _health(self) -> tuple[list[str], list[str], list[str]]:
        return self._server.dead(), self._server.unready(), self._server.problems()

    async def mirrored(self) -> None:
        """Returns when every frontend has the present catalog and has sent what it counted until then."""
        self.publish()
        gone = self.models.keys() - self._snapshot.described.keys()
        if self.connections:
            await asyncio.wait([each.sync() for each in self.connections], timeout=_SYNC_WITHIN_S)
        for number in gone & self.models.keys():
            del self._ids[self.models.pop(number)]

    def _runs_alone(self, name: str) -> bool:
        with suppress(ServingError):  # its last version is being unloaded
            return self._server.engine.batching_options(name).max_batch_size == 1
        return False

    def _id(self, model: ServedModel) -> int:
        number = self._ids.get(model)
        if number is None:
            self._last_id = number = self._last_id + 1
            self._ids[model] = number
            self.models[number] = model
        return number

    def _send_all(self, kind: MessageKind, *message: Any) -> None:
        for each in self.connections:
            each.send(kind, *message)

    def _publish_regularly(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_PUBLISH_EVERY_S, self._publish_regularly)
        self.publish()

    # --- queries ---

    async def query(self, name: str, arguments: Sequence[Any]) -> Any:
        """The answer to the query `name`. Raises ServingError."""
        return await self._queries[name](*arguments)

    async def _tune_batching(self, model: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Requests that frontends answered before count as before the change; later ones follow it."""
        await self.mirrored()
        options = await self._server.tune_batching(model, changes)
        await self.mirrored()
        return options

    async def _load(self, name: str, batch_sizes: Sequence[int], max_batch_delay_ms: float | None) -> None:
        await self._server.repository.load(name, LoadOverrides(tuple(batch_sizes), max_batch_delay_ms))

    async def _reload(self, configs: bytes) -> None:
        """Loads what a new list of models names. Only frontends that know of a list ask for this."""
        await self._server.engine.reload_for_caller(MODEL_LIST.validate_json(configs))

    def tell(self, event: Event) -> None:
        self._server.listener(event)

    def weigh(self, name: str, weight: float) -> None:
        self._server.engine.weigh_caller(name, weight)
