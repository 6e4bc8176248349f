"""The oracle is the kernel: real connections of this process."""

from __future__ import annotations

import os
import socket

import pytest

from app.core.errors import Forbidden
from app.transports.local_clients import UNIX_SOCKET, is_local, user_of


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_user_of_a_connection_within_the_machine(family: socket.AddressFamily, host: str) -> None:
    server = socket.create_server((host, 0), family=family)
    with server, socket.create_connection(server.getsockname()[:2]) as client:
        assert user_of(*client.getsockname()[:2]) == os.getuid()


def test_an_ipv4_client_of_an_ipv6_socket() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0] as accepted:
            host, port = accepted.getpeername()[:2]
            assert host == "::ffff:127.0.0.1"
            assert user_of(host, port) == os.getuid()


def test_a_client_of_a_unix_socket_has_no_address() -> None:
    assert user_of("", 0) == UNIX_SOCKET


@pytest.mark.parametrize(
    "host", ["10.1.2.3", "203.0.113.9", "2001:db8::1", "::ffff:10.0.0.1", "localhost", "127.0.0.1x"]
)
def test_whoever_is_elsewhere_is_rejected(host: str) -> None:
    assert not is_local(host)
    with pytest.raises(Forbidden, match="loopback interface"):
        user_of(host, 1)


def test_a_connection_that_is_not_there_has_no_user() -> None:
    listening = socket.create_server(("127.0.0.1", 0))  # it is connected to nobody
    with listening, pytest.raises(Forbidden, match="does not know the user"):
        user_of(*listening.getsockname())
