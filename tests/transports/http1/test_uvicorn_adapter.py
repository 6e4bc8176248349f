"""What happens where uvicorn lacks what connections of ours need."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import ExitStack

import httpx
import pytest
import uvicorn

from app.transports.http.connections.connection_limits import ConnectionLimits, Connections
from app.transports.http.direct.fast_path import FastPath
from app.transports.http1 import uvicorn_adapter
from app.transports.http1.uvicorn_adapter import DrainingServer, HttpPort, missing_names
from tests.support.waiting import HANG_S, until
from tests.transports.http1.connection_world import ROW, World, request
from tests.transports.http1.quiet_server import Drained, QuietServer, server_of


def test_this_version_of_uvicorn_has_what_connections_need() -> None:
    assert missing_names() == []


@pytest.mark.parametrize("lacking", ["no state", "no attribute"])
def test_without_what_it_needs_uvicorn_answers_everything(
    lacking: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replacement = {
        "no state": None,
        "no attribute": type("Other", (), {"connections": set(), "tasks": set()}),
    }[lacking]
    monkeypatch.setattr(uvicorn_adapter, "ServerState", replacement)

    async def main() -> None:
        world = World(True)
        fast_path = FastPath(world._find)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = server_of(world._application, fast_path, listener.dup())
            serving = asyncio.create_task(server.serve([]))
            port = listener.getsockname()[1]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                reply = await client.post("/v1/models/m:nothing", json=ROW)
            assert reply.status_code == 400
            server.should_exit = True
            await serving
        assert not fast_path._heads  # it was not asked

    asyncio.run(main())
    assert "all requests go through ASGI" in caplog.text


def test_connections_of_all_sockets_of_a_port_share_what_is_kept_of_heads() -> None:
    async def main() -> None:
        world = World(True)
        fast_path = FastPath(world._find)
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
            connections = Connections(ConnectionLimits(), fast_path.clock)
            server = QuietServer(world._application, connections, HttpPort([each.dup() for each in sockets], fast_path))
            serving = asyncio.create_task(server.serve([]))
            addresses = [each.getsockname() for each in sockets]
            clients = [stack.enter_context(socket.create_connection(address)) for address in addresses]
            await until(lambda: len(server.server_state.connections) == len(clients))
            assert len({id(each._known_heads) for each in server._connections()}) == 1
            server.should_exit = True
            await serving

    asyncio.run(main())


def test_who_came_after_a_second_signal_counts_as_dropped_too(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        world = World(True)
        world.device.seconds = HANG_S
        fast_path = FastPath(world._find)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = server_of(world._application, fast_path, listener.dup())
            serving = asyncio.create_task(server.serve([]))
            address = listener.getsockname()
            with socket.create_connection(address) as client, socket.create_connection(address):
                await until(lambda: len(server.server_state.connections) == 2)
                server._drop_the_rest()
                assert server.exit_code == 0
                client.sendall(request())
                await serving
        return server.exit_code

    assert asyncio.run(main()) == 1
    assert "Told to end at once: 1 connections close before their answer is sent" in caplog.text


def test_a_server_without_its_methods_says_that_nothing_is_drained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(uvicorn.Server, "on_tick")

    async def application(*_: object) -> None: ...

    DrainingServer(application, Drained(), Connections(ConnectionLimits(), time.monotonic), [])
    assert "has no Server.on_tick; nothing is drained" in caplog.text


class Leaving(Drained):
    """Ends its grace when the test lets it."""

    grace_s = 0.001

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.may_end = asyncio.Event()

    def begin_grace(self) -> None:
        self.steps.append("grace begins")

    async def end_grace(self) -> None:
        await self.may_end.wait()
        self.steps.append("grace ends")

    async def drain(self) -> bool:
        self.steps.append("drain")
        return True


@pytest.mark.parametrize("told_by", [signal.SIGTERM, signal.SIGINT])
def test_within_the_grace_all_are_served_and_then_nobody_is_left_who_was_not_told(
    told_by: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGINT, which a person sends, drains at once."""
    monkeypatch.setattr(uvicorn_adapter, "_LINGER_S", 0.0 if told_by is signal.SIGINT else HANG_S)
    leaving = Leaving()
    now_s = time.monotonic()  # of the connections

    async def main() -> None:
        world = World(True)
        world.device.seconds = 0.0
        fast_path = FastPath(world._find, clock=lambda: now_s)
        loop = asyncio.get_running_loop()

        async def ask(client: socket.socket) -> bytes:
            await loop.sock_sendall(client, request())
            return await loop.sock_recv(client, 65536)

        with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as clients:
            server = server_of(world._application, fast_path, listener.dup(), server=leaving)
            serving = asyncio.create_task(server.serve([]))
            kept, idle, new = (
                clients.enter_context(socket.create_connection(listener.getsockname())) for _ in range(3)
            )
            for each in (kept, idle, new):
                each.setblocking(False)
            for each in (kept, idle):
                assert b"connection: close" not in await ask(each)
            nonlocal now_s
            now_s += 10.0
            server.handle_exit(told_by, None)
            if told_by is signal.SIGTERM:
                await until(lambda: leaving.steps == ["grace begins"])
                for each in (kept, new):
                    reply = await ask(each)
                    assert b" 200 " in reply
                    assert b"connection: close" in reply
                    assert await loop.sock_recv(each, 1) == b""
                before = set(server.server_state.connections)
                latest = clients.enter_context(socket.create_connection(listener.getsockname()))
                latest.setblocking(False)
                await until(lambda: bool(server.server_state.connections - before))
                leaving.may_end.set()
                assert await loop.sock_recv(idle, 1) == b""
                assert leaving.steps[-1] == "grace ends"
                assert b" 200 " in await ask(latest)  # it had just connected
                await until(lambda: leaving.steps == ["grace begins", "grace ends", "drain"])
                server._drop_the_rest()  # late requests are not waited for
            await serving

    asyncio.run(main())
    assert leaving.steps[-1] == "drain"
    assert len(leaving.steps) == (1 if told_by is signal.SIGINT else 3)
