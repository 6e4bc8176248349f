"""Sockets bound to ports, and how every frontend listens on the same ports with sockets of its own.

The kernel spreads new connections evenly over all listening sockets of a port (SO_REUSEPORT, socket(7)). On one socket
shared by all frontends, the first that wakes accepts every waiting connection, and another may get none for as long as
clients keep their connections. A dead frontend does not listen, so it gets no connection.

An event loop of libuv (uvloop) accepts one connection of a file descriptor in a turn (libuv's pull request 3696). Under
load, where a turn takes some 10 ms, new clients then waited for seconds, so several descriptors stand for each socket.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

#: Connections that are accepted in a turn of the event loop. Chosen: opening so many takes about 1 ms. Every descriptor
#: wakes for each connection: a client that connects for every request lost some 5 % of its rate with 8, 20 % with 16.
_ACCEPTED_IN_A_TURN = 8


class PortKind(NamedTuple):
    """A protocol that has ports, and the settings that say which."""

    name: str
    settings: str


HTTP = PortKind("HTTP", "host, rest_port and operator_port say where")
GRPC = PortKind("gRPC", "host and grpc_port say where")


class PortNotFree(Exception):
    """Nothing can listen there. The text says where, and why."""


def bind_ports(host: str, ports: Mapping[int, str], kind: PortKind = HTTP) -> Iterator[socket.socket]:
    """Bound sockets that do not listen yet, one for each port and address of `host`. Raises PortNotFree.

    `ports`: what the log adds to the line of each.
    """
    for port, more in ports.items():
        try:
            for bound in bind_addresses(host, port):
                logger.info("%s on %s, port %d%s", kind.name, *bound.getsockname()[:2], more)
                yield bound
        except OSError as error:
            where = f"{host}, port {port}"
            raise PortNotFree(f"{kind.name} cannot listen on {where}: {error.strerror}; {kind.settings}") from error


def bind_addresses(host: str, port: int) -> list[socket.socket]:
    """Bound sockets that do not listen yet, one for each address of `host`, all on one port. Raises OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(bind_port(family, (address[0], port, *address[2:])))
            port = sockets[0].getsockname()[1]
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def bind_port(family: int, address: tuple[Any, ...], *, shared: bool = False) -> socket.socket:
    """A TCP socket bound to this address, not yet listening. `::` is every address of IPv4, too, as for gRPC.

    Args:
        shared: let other sockets of the same user that say so, too, listen on the same port.

    Raises:
        OSError: another process listens there, or there is no such address.
    """
    port = socket.socket(family, socket.SOCK_STREAM)
    try:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        port.bind(address)
    except OSError:
        port.close()
        raise
    return port


def share_port(held: socket.socket) -> socket.socket:
    """A further socket at the address of `held`. Raises OSError."""
    return bind_port(held.family, held.getsockname(), shared=True)


def accepting_many(sockets: Sequence[socket.socket]) -> list[socket.socket]:
    """The same listening sockets, each under as many descriptors as connections are to be accepted in a turn."""
    return [each for one in sockets for each in (one, *(one.dup() for _ in range(_ACCEPTED_IN_A_TURN - 1)))]
