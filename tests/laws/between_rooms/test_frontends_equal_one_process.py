"""Frontends equal one process: what a protocol reads of a model, of callers and of limits is the same in a frontend.

Suites of protocols, access and limits run on both (tests/every_protocol, tests/access/test_every_route.py); settings
are compared by test_every_setting_acts.py. Here is what travels between the processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app import runtime
from app.core.batch_sizes import BatchSizes
from app.core.events import (
    ConnectionsRejected,
    CredentialsLoaded,
    Event,
    RequestFinished,
    RequestsFinished,
    RequestsRefused,
    ignore,
)
from app.core.graph_rows import GraphRows
from app.core.inference import ModelSignature, TensorSpec
from app.frontends.channel.catalog_snapshot import take_snapshot
from app.frontends.frontend.frontend_server import FrontendServer
from app.frontends.frontend.remote_repository import RemoteRepository
from app.model import Model
from app.repository.catalog import Catalog
from app.repository.servable import Servable
from app.server.client_memory_budget import budget_bytes
from app.server.server import Server
from tests.every_protocol.live import RUNTIME, frontends_of, settings
from tests.support.waiting import HANG_S, until

Scenario = Callable[[Server, FrontendServer], Awaitable[None]]


def play(folder: Path, scenario: Scenario, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)
    monkeypatch.setattr("app.frontends.frontend.remote_engine._RECONNECT_AFTER_S", 0.0)

    async def main() -> None:
        server = Server(settings(folder, frontends=1, **more))
        await server.start()
        assert server._starting is not None
        await server._starting
        async with asyncio.timeout(HANG_S), frontends_of(server) as (frontend,):
            await scenario(server, frontend)
        await server.stop()

    asyncio.run(main())


_SPEC = {"other": TensorSpec("other", np.dtype(np.int32), (None, 3))}

#: Values of the fields of a signature that protocols read, each another one than the model's.
CHANGED: Mapping[str, Any] = {
    "inputs": _SPEC,
    "outputs": _SPEC,
    "method_name": "tensorflow/serving/classify",
    "masks": {"lengths": "features"},
    "defaults": {"features": np.float32([[7.0, 8.0]])},
    "alone": {"doubled": "its rows were found to see each other"},
    "finite_only": "infinite values spread",
    "labels": {"doubled": ("cat", "dog")},
    "mixed_rows": True,
    "graph_rows": GraphRows({}, frozenset({"features"}), frozenset(), ""),
    "most_rows": 3,
    "ragged": {"features": ("splits",)},
    "ragged_outputs": {"doubled": ("splits",)},
}


@pytest.mark.parametrize("pipeline", [False, True])
def test_what_all_signatures_of_a_pipeline_have_those_of_its_frontends_have(*, pipeline: bool) -> None:
    signature = ModelSignature("s", _SPEC, _SPEC, strict_names=pipeline)
    model: Any = SimpleNamespace(
        name="m", sizes=BatchSizes((1,)), signatures={"s": signature}, pipeline=pipeline, missing="", note=""
    )
    model.pads = lambda _: False
    catalog, servable = Catalog(), Servable("m", 1, ignore)
    servable.model, catalog.models["m"] = model, {1: servable}
    snapshot = take_snapshot(catalog, (), lambda _: 1, lambda _: False)
    frontend: Any = RemoteRepository(lambda *_: asyncio.sleep(0.0))
    frontend.apply(None, snapshot)
    found = frontend.resolve("m")
    assert (found.signatures["s"].strict_names, found.pipeline) == (pipeline, pipeline)


def test_what_is_found_out_of_a_signature_later_is_known_in_frontends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Server, frontend: FrontendServer) -> None:
        model = server.repository.resolve("m")
        assert isinstance(model, Model)
        known = model.signatures
        for name, value in CHANGED.items():
            changed = {each: replace(signature, **{name: value}) for each, signature in known.items()}
            model._placement.signatures = changed
            await server.repository.mirrored()
            theirs = frontend.repository.resolve("m").signatures
            assert theirs.keys() == known.keys()
            for signature in theirs.values():
                found = getattr(signature, name)
                assert str(found) == str(value), f"a frontend has {found} as {name}"
        model._placement.signatures = known
        await server.repository.mirrored()
        assert frontend.repository.resolve("m").signatures == known

    play(tmp_path, scenario, monkeypatch)


def test_a_new_engine_is_told_what_the_one_before_it_knew_of_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Server, frontend: FrontendServer) -> None:
        weights = server.engine._caller_weights
        told = {"a": 3.0, "b": 0.5, "c": 2.0}
        for name, weight in told.items():
            frontend.engine.weigh_caller(name, weight)
        await server.repository.mirrored()
        assert dict(weights.items()) == told

        # The engine begins anew: it knows nothing.
        for name in told:
            weights.pop(name, None)
        connection: Any = frontend.engine._connection
        connection._transport.abort()
        await connection.closed
        await until(partial(_is_back, frontend, connection))
        await server.repository.mirrored()
        assert dict(weights.items()) == told

    play(tmp_path, scenario, monkeypatch)


def _is_back(frontend: FrontendServer, lost: object) -> bool:
    return frontend.engine._connection is not lost and frontend.engine.is_connected


def test_the_weight_of_a_caller_acts_at_once_and_is_one_table_in_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Server, frontend: FrontendServer) -> None:
        batcher = server.engine.batcher
        assert batcher is not None
        callers: Any = batcher.queue.callers
        for weight in (4.0, 2.0, 1.0):
            frontend.engine.weigh_caller("a", weight)
            await server.repository.mirrored()
            assert callers._weights.get("a", 1.0) == weight

    play(tmp_path, scenario, monkeypatch, fair_callers="address")


#: What a frontend sees and the engine counts, and as what the engine hears it.
TOLD: Sequence[tuple[Event, Event]] = [
    (RequestFinished("rest", "200", "m", 1, "s", 0.5), RequestsFinished("rest", "200", "m", 1, "s", (0.5,))),
    (RequestsFinished("grpc", "OK", "m", 1, "s", [0.1, 0.2]), RequestsFinished("grpc", "OK", "m", 1, "s", (0.1, 0.2))),
    (ConnectionsRejected("full", 3), ConnectionsRejected("full", 3)),
    (RequestsRefused("memory", 2), RequestsRefused("memory", 2)),
    (CredentialsLoaded("access_file", "loaded"), CredentialsLoaded("access_file", "loaded")),
]


@pytest.mark.parametrize(("seen", "heard"), TOLD, ids=[type(seen).__name__ for seen, _ in TOLD])
def test_what_a_frontend_counts_is_heard_by_the_engine_once(
    seen: Event, heard: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Server, frontend: FrontendServer) -> None:
        events: list[Event] = []
        monkeypatch.setattr(server, "listener", events.append)
        frontend.listener(seen)
        await server.repository.mirrored()
        await server.repository.mirrored()
        assert [str(each) for each in events if type(each) is type(heard)] == [str(heard)]

    play(tmp_path, scenario, monkeypatch)


@pytest.mark.parametrize("frontends", [0, 1, 2, 7])
def test_all_processes_together_take_the_memory_of_one(frontends: int, tmp_path: Path) -> None:
    """For what waits in the queue, and for bodies and replies of all clients."""
    megabytes = 70
    budget = budget_bytes(megabytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(runtime._REGISTRY, *RUNTIME)
        values = settings(tmp_path, frontends=frontends, memory_budget_mb=megabytes)
        server = Server(values)
        clients = [FrontendServer(values, tmp_path / "engine").memory.limit for _ in range(frontends)]
    taken = server.engine._max_queue_bytes + sum(clients or [server.memory.limit])
    assert budget * 0.99 < taken <= budget
