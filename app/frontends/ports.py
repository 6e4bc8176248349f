"""The HTTP ports on which every frontend listens with a socket of its own.

The kernel spreads new connections evenly over all listening sockets of a port (SO_REUSEPORT, socket(7)). On one socket
shared by all frontends, the first that wakes accepts every waiting connection, and another may get none for as long as
clients keep their connections. A dead frontend does not listen, so it gets no connection.
"""

from __future__ import annotations

import socket
from typing import Any


def bind_port(family: int, address: tuple[Any, ...], *, shared: bool = False) -> socket.socket:
    """A TCP socket bound to this address, not yet listening.

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
            port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        port.bind(address)
    except OSError:
        port.close()
        raise
    return port


def share_port(held: socket.socket) -> socket.socket:
    """Another socket at the address of `held`. Raises OSError."""
    return bind_port(held.family, held.getsockname(), shared=True)
