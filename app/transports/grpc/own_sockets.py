"""The sockets of gRPC's connections. gRPC does not show them, but they are of this process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def own_sockets() -> Iterator[socket.socket]:
    """A second descriptor of each socket of this process, closed afterwards unless it is taken by `dup`."""
    for each in Path("/proc/self/fd").iterdir():
        try:
            if not os.readlink(each).startswith("socket:"):
                continue
            found = socket.socket(fileno=os.dup(int(each.name)))
        except OSError:  # the folder's own descriptor
            continue
        with found:
            yield found


def _connections(local: int | str) -> Iterator[socket.socket]:
    """Those that came to a port, or to the path of a Unix socket."""
    for each in own_sockets():
        with suppress(OSError):  # it is not connected
            each.getpeername()
            if _local(each) == local:
                yield each


def has_connections(local: int | str) -> bool:
    """Whether any that came to a port, or to the path of a Unix socket, is open."""
    return next(_connections(local), None) is not None


def end_connections(local: int | str) -> int:
    """Ends each connection that came to a port, or to the path of a Unix socket. Returns how many there were."""
    count = 0
    for each in _connections(local):
        with suppress(OSError):  # it has ended meanwhile
            each.shutdown(socket.SHUT_RDWR)
            count += 1
    return count


def listening_at(local: int | str) -> list[socket.socket]:
    """Duplicates of the sockets that listen at a port, or at the path of a Unix socket; the caller closes them."""
    return [
        each.dup()
        for each in own_sockets()
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and _local(each) == local
    ]


def _local(connected: socket.socket) -> int | str:
    name = connected.getsockname()
    return name[1] if isinstance(name, tuple) else os.fsdecode(name)
