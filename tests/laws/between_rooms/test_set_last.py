"""What was set last acts until it is set again, whatever comes meanwhile: how batches of a model are formed.

It is set by tuning, by a load that wants a delay, and by the next load that wants none; versions that come set nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from app import runtime
from app.core.interfaces import NO_OVERRIDES, LoadOverrides
from app.server.server import Server
from tests.every_protocol.live import RUNTIME, settings
from tests.support.waiting import HANG_S

#: Milliseconds, by the steps before.
DELAYS: Mapping[str, float] = {
    "tune version": 7.0,
    "load version": 2.0,
    "tune load": 2.0,
    "load tune version": 7.0,
    "load plain": 0.0,
    "load plain tune version": 7.0,
    "load plain load tune version": 7.0,
    "load plain load plain": 0.0,
}


def add(folder: Path, name: str, version: int) -> None:
    path = folder / name / str(version)
    path.mkdir(parents=True)
    (path / "saved_model.pb").touch()


def test_the_options_of_batching_are_those_that_were_set_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)
    for steps in DELAYS:
        add(tmp_path, steps, 1)

    async def take(server: Server, name: str, step: str) -> None:
        if step == "tune":
            await server.tune_batching(name, {"max_batch_delay_ms": 7.0})
        elif step == "version":
            version = server.repository.resolve(name).version + 1
            add(tmp_path, name, version)
            await server.repository.poll_once()
            assert server.repository.resolve(name).version == version
        else:
            await server.repository.load(name, LoadOverrides((), 2.0) if step == "load" else NO_OVERRIDES)

    async def main() -> None:
        server = Server(settings(tmp_path, max_batch_delay_ms=0.0))
        await server.start()
        assert server._starting is not None
        await server._starting
        async with asyncio.timeout(HANG_S):
            for steps in DELAYS:
                for step in steps.split():
                    await take(server, steps, step)
        found = {name: server.engine.batching_options(name).max_batch_delay_ms for name in DELAYS}
        assert found == DELAYS
        await server.stop()

    asyncio.run(main())
