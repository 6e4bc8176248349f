"""What has stopped has stopped: of a server that has closed no task runs and no timer waits.

It closes while each of its parts is at work: an issuer of tokens is slow, a page is being made, a storage is watched.
What it takes of the system is test_ends.py's.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app import runtime
from app.server.server import Server
from tests.access.jwks import ISSUER, RSA, JwksServer, jwks_server, key_set, public
from tests.access.test_access_file import ISSUER as ISSUER_ENTRY
from tests.access.test_access_file import KEY
from tests.every_protocol.live import RUNTIME, frontends_of, settings
from tests.support.waiting import HANG_S, until


def running() -> list[str]:
    """Tasks, and timers of Ferry's objects, that wait in this event loop."""
    loop: Any = asyncio.get_running_loop()
    tasks = [repr(each) for each in asyncio.all_tasks() if each is not asyncio.current_task()]
    timers = [each._callback for each in loop._scheduled if not each.cancelled()]
    owners = [getattr(each, "__self__", each) for each in timers]
    return [*tasks, *[f"a timer of {each!r}" for each in owners if type(each).__module__.startswith("app.")]]


@pytest.mark.parametrize("frontends", [0, 2], ids=["one process", "frontends"])
def test_of_a_server_that_has_stopped_nothing_runs(
    frontends: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)
    issuer = {**ISSUER_ENTRY, "issuer": ISSUER}
    issuer["groups"] = [{"value": "ml", "models": ["*"], "permissions": ["infer"]}]

    async def main(issued: JwksServer) -> None:
        access = tmp_path / "access.json"
        access.write_text(json.dumps({"keys": [KEY], "issuers": [{**issuer, "jwks": issued.url}]}))
        server = Server(settings(tmp_path / "models", frontends=frontends, access_file=str(access), poll_interval_s=9))
        await server.start()
        assert server._starting is not None
        await server._starting
        async with asyncio.timeout(HANG_S):
            if frontends:
                async with frontends_of(server) as faces:
                    await until(lambda: issued.asked > 0)  # it answers one after the other
                    asking = [asyncio.create_task(face.metrics()) for face in faces]
                    await asyncio.sleep(0)
            else:
                await until(lambda: issued.asked > 0)
                asking = [asyncio.create_task(server.metrics())]
                await asyncio.sleep(0)
            await server.stop()
            assert server.stopped
            for each in asking:  # those who ask are callers, who end when their connections do
                each.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await each
        await asyncio.sleep(0)
        assert not running()

    with jwks_server() as issued:
        issued.content = key_set(public(RSA, "k1"))
        issued.answers.clear()
        try:
            asyncio.run(main(issued))
        finally:
            issued.answers.set()
