"""The end of a server while clients connect: each is answered or refused, none is reset (RFC 9112, section 9.6)."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import uvloop

from app.transports import closing_listener
from app.transports.closing_listener import accept_the_last
from app.transports.http.direct.fast_path import FastPath
from app.transports.http1 import uvicorn_adapter
from tests.support.waiting import HANG_S, until
from tests.transports.http1.connection_world import LIMITS, World, request
from tests.transports.http1.quiet_server import QuietServer, server_of
from tests.transports.http1.test_http1_asgi_request import READY

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
in_both_loops = pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])

#: More than one turn of any event loop accepts.
CLIENTS = 150


def replies(client: socket.socket) -> bytes:
    """Everything until the server closes the connection. Raises ConnectionResetError."""
    client.settimeout(HANG_S)
    return b"".join(iter(lambda: client.recv(2**16), b""))


async def serve(listener: socket.socket) -> tuple[QuietServer, asyncio.Task[None]]:
    world = World(True)
    server = server_of(world._application, FastPath(world._find), listener, LIMITS)
    serving = asyncio.create_task(server.serve([]))
    await until(lambda: server.started)
    return server, serving


@in_both_loops
def test_requests_that_wait_to_be_accepted_when_the_server_ends_are_answered(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> list[bytes]:
        with ExitStack() as stack:
            listener = socket.create_server(("127.0.0.1", 0))
            address = listener.getsockname()
            server, serving = await serve(listener)

            # The kernel makes these connections; the event loop has no turn until the server ends.
            clients = [stack.enter_context(socket.create_connection(address)) for _ in range(CLIENTS)]
            for client in clients:
                client.sendall(READY)
            await server.shutdown([listener])
            server.should_exit = True
            await serving
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            return [replies(client) for client in clients]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert {each.partition(b"\r\n")[0] for each in runner.run(main())} == {b"HTTP/1.1 200 OK"}


@in_both_loops
def test_a_request_that_comes_on_a_new_connection_after_the_listener_closed_is_answered(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_adapter, "_LINGER_S", HANG_S)

    async def main() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        server, serving = await serve(listener)
        with socket.create_connection(listener.getsockname()) as client:
            server.should_exit = True
            await until(lambda: listening_sockets_are_closed(server))
            client.sendall(request("/v2/models/m/ready", b"", method="GET"))
            await serving  # at once: every connection has had an answer
            return replies(client)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()).startswith(b"HTTP/1.1 200 OK")


def listening_sockets_are_closed(server: QuietServer) -> bool:
    return not any(each.sockets for each in server.servers)


def test_nobody_connects_any_more_once_the_last_are_accepted() -> None:
    """What a client sends first is dropped, so it is refused later, and not reset."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as late:
            await accept_the_last([listener.fileno()])
            late.setblocking(False)
            assert late.connect_ex(listener.getsockname()) == errno.EINPROGRESS
            poll = select.poll()
            poll.register(late, select.POLLOUT)
            assert poll.poll(0) == []

    asyncio.run(main())


@in_both_loops
def test_a_client_that_is_connecting_when_the_server_ends_is_answered(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """It has heard of the server, which has not heard of it again: so it is for a round trip. To the client that is a
    connection, so what it sends must be read. TCP_DEFER_ACCEPT (tcp(7)) makes the round trip as long as the test likes.
    """

    async def main() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60)
        server, serving = await serve(listener)
        with socket.create_connection(listener.getsockname()) as client:
            ending = asyncio.create_task(server.shutdown([listener]))
            await until(lambda: has_a_filter(listener))
            client.sendall(READY)
            await ending
            server.should_exit = True
            await serving
            return replies(client)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()).startswith(b"HTTP/1.1 200 OK")


def has_a_filter(listener: socket.socket) -> bool:
    with socket.socket() as late:
        late.setblocking(False)
        late.connect_ex(listener.getsockname())
        poll = select.poll()
        poll.register(late, select.POLLOUT)
        return poll.poll(0) == []


def test_clients_that_are_never_heard_again_hold_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_listener, "_HANDSHAKES_S", 0.0)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60)
            with socket.create_connection(listener.getsockname()):
                assert closing_listener._handshakes([listener.getsockname()[1]])
                await accept_the_last([listener.fileno()])

    asyncio.run(main())
