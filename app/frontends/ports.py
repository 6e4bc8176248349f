"""HTTP's ports, on which every frontend listens for itself.

The kernel deals new connections out evenly among those that listen (SO_REUSEPORT, socket(7)). On one socket shared by
all, whoever wakes first takes all that wait, which may leave a frontend without any for as long as clients keep their
connections. Who is dead no longer listens, and gets none.
"""

from __future__ import annotations

import socket
from typing import Any


def bound(family: int, address: tuple[Any, ...], *, shared: bool = False) -> socket.socket:
    """A TCP socket with this address, not yet listening.

    Args:
        shared: others may listen on the same port, if they say so, too, and are of the same user.

    Raises:
        OSError: somebody else listens there, or there is no such address.
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


def another(held: socket.socket) -> socket.socket:
    """A socket of one's own at the address of the one that is held. Raises OSError."""
    return bound(held.family, held.getsockname(), shared=True)
