"""Several listen on one port; who does not share keeps others out."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest
import uvloop

from app.config.settings import Settings
from app.transports.ports import GRPC, accepting_many, bind_port, bind_ports, share_port
from tests.support.processes import free_port, needs_ipv6
from tests.support.waiting import HANG_S


@needs_ipv6
def test_the_address_of_all_ipv6_is_that_of_all_ipv4_too() -> None:
    with bind_port(socket.AF_INET6, ("::", 0)) as held, share_port(held) as one, share_port(held) as two:
        one.listen()
        two.listen()
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, held.getsockname()[1]), HANG_S):
                pass


@needs_ipv6
def test_another_address_of_ipv6_is_that_alone() -> None:
    with bind_port(socket.AF_INET6, ("::1", 0)) as held, share_port(held) as one:
        one.listen()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", held.getsockname()[1]), HANG_S)


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_each_of_several_listens_on_the_port_that_is_held(family: int, host: str) -> None:
    with bind_port(family, (host, 0)) as held, share_port(held) as one, share_port(held) as two:
        one.listen()
        two.listen()
        assert one.getsockname() == two.getsockname() == held.getsockname()
        with socket.create_connection(held.getsockname()[:2]):
            pass


def test_a_closed_listener_gets_no_connection() -> None:
    with bind_port(socket.AF_INET, ("127.0.0.1", 0)) as held, share_port(held) as stays:
        stays.listen()
        with share_port(held) as leaves:
            leaves.listen()
        for _ in range(32):
            with socket.create_connection(held.getsockname()):
                stays.settimeout(HANG_S)
                stays.accept()[0].close()


def test_a_port_with_a_listener_cannot_be_held_again() -> None:
    with bind_port(socket.AF_INET, ("127.0.0.1", 0)) as held, share_port(held) as one:
        one.listen()
        with pytest.raises(OSError, match="in use"):
            bind_port(socket.AF_INET, held.getsockname())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_clients_that_connect_together_are_accepted_in_a_few_turns_of_the_event_loop(loop: Any) -> None:
    connected: list[object] = []

    class Counted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected.append(transport)

    async def turns(clients: int) -> int:
        running = asyncio.get_running_loop()
        port = bind_port(socket.AF_INET, ("127.0.0.1", 0))
        servers = [await running.create_server(Counted, sock=each, backlog=128) for each in accepting_many([port])]
        waiting = [socket.create_connection(port.getsockname()) for _ in range(clients)]
        taken = 0
        while len(connected) < clients:
            await asyncio.sleep(0)
            taken += 1
        for each in waiting:
            each.close()
        for server in servers:
            server.close()
        return taken

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(turns(96)) <= 96 / 8 + 6  # one of asyncio's takes some turns to make a transport


TLS = {"tls_certificate": "c", "tls_key": "k"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, {8501: ""}),
        (TLS, {8501: ", TLS"}),
        ({"single_port": True, **TLS}, {8501: ", TLS, gRPC too"}),
        ({"operator_port": 8510, **TLS}, {8501: ", TLS", 8510: ", TLS, for operators"}),
        ({"operator_port": 8510, "operator_port_tls": "off", **TLS}, {8501: ", TLS", 8510: ", for operators"}),
    ],
)
def test_each_port_of_http_says_what_it_is_for(given: dict[str, Any], told: dict[int, str]) -> None:
    assert Settings(**given).http_ports == told


def test_the_log_says_where_something_listens_and_what_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one, two = free_port(), free_port()
    for each in bind_ports("127.0.0.1", {one: "", two: ", TLS, for operators"}, GRPC):
        each.close()
    assert caplog.messages == [
        f"gRPC on 127.0.0.1, port {one}", f"gRPC on 127.0.0.1, port {two}, TLS, for operators"
    ]  # fmt: skip
