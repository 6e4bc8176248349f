"""The memory budget for what clients send and for replies that they have not read, and its parts.

In a container with a limit the inflated bodies count, too (app/transports/memory/body_room.py); they are measured here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from app.batching.dispatch.traffic_proof import MOST_BYTES_OF_ALL
from app.core.machine_memory import available_bytes, container_left_bytes, give_back
from app.transports.memory.body_room import BodyRoom

logger = logging.getLogger("ferry")

MEGABYTE = 1024 * 1024

#: Where the system does not say how much memory there is. Chosen.
_UNKNOWN_BYTES = 16 * 1024 * MEGABYTE

#: Bodies that are parsed at the same time, and how often each is there then: itself, a copy on its way to the process
#: that parses it, and its tensors, at most 8 bytes for each of its own (one in MessagePack, for an int64).
_PARSED, _COPIES = 2, 10

#: A connection has its head twice while it arrives, and these bytes in Python, uvloop or gRPC. Measured with 2,000 of a
#: kind: 60 KiB with 30 KiB of a head, 3 KiB without, 14 KiB over gRPC; chosen: some more.
_HEADS, _CONNECTION_BYTES = 2, 24 * 1024

#: A connection of our own gRPC engine takes up to this, uncounted: header tables and lists that it may refer to again,
#: a frame that is not whole, streams that were reset, the first 8 KiB of messages and of all else, 32 KiB of replies in
#: its transport. Measured by tests/transports/grpc/incoming/test_memory.py: 90 KiB without the last.
GRPC_CONNECTION_BYTES = 128 * 1024

#: OpenSSL's bytes of a connection with TLS. Measured with 200: 9 KB, 105 KB after 1 MB came at once; chosen:
#: as much again for what goes.
TLS_BYTES = 192 * 1024

#: The part of the memory that is left at the start. Chosen: models, calls and copies need the rest.
_PART = 4


def budget_bytes(configured_mb: int) -> int:
    """The setting `memory_budget_mb` in bytes; 0 stands for a quarter of the memory that can be taken now."""
    if configured_mb:
        return configured_mb * MEGABYTE
    available = available_bytes()
    return max(MEGABYTE, int(available if available < inf else _UNKNOWN_BYTES) // _PART)


def queue_bytes(budget: int) -> int:
    """The half of the budget that is for tensors in the queue."""
    return budget // 2


def client_bytes(budget: int, frontends: int = 0) -> int:
    """The bytes of the other half, for bodies and replies, in a process. `frontends` 0: the only process."""
    return (budget - queue_bytes(budget)) // max(1, frontends)


def most_bytes(
    budget: int,
    *,
    max_body_bytes: int,
    connections: int,
    max_head_bytes: int,
    grpc_connections: int = 0,
    tls: bool = False,
    http_tls: bool = False,
    executes: bool = True,
) -> int:
    """The most bytes that clients can make a process take, beside libraries, models and their calls.

    The formula of docs/architecture/threads-and-memory.md, "Memory".

    Args:
        max_body_bytes: of HTTP and gRPC, the larger one.
        connections: of HTTP.
        grpc_connections: of gRPC; tls: they have it; http_tls: those of HTTP have it.
        executes: models; a frontend keeps no rows of requests to prove that they may share calls.
    """
    first_body = max_body_bytes  # is taken whatever its size
    parsed = _PARSED * _COPIES * max_body_bytes
    of_own = GRPC_CONNECTION_BYTES + (TLS_BYTES if tls else 0)
    of_http = _HEADS * max_head_bytes + _CONNECTION_BYTES + (TLS_BYTES if http_tls else 0)
    kept_rows = MOST_BYTES_OF_ALL if executes else 0
    return budget + first_body + parsed + connections * of_http + grpc_connections * of_own + kept_rows


def container_room(processes: int = 0, left: Callable[[], float] = container_left_bytes) -> BodyRoom:
    """The room for bodies of one process. `processes` share what the container leaves; 0: the only process."""
    processes = max(1, processes)
    return BodyRoom(lambda: left() / processes, give_back=give_back)


def tell_largest_bodies(room: BodyRoom, max_body_bytes: int) -> None:
    """Logs the largest bodies that are taken, if `max_body_bytes` does not fit into the container."""
    room.measure()
    if room.largest() < max_body_bytes:
        logger.warning(
            "The limit of this container leaves too little memory for bodies of max_body_bytes, %s: the largest that "
            "are taken have %s; send less at a time, or give the container more memory",
            f"{max_body_bytes:,}",
            room.told(),
        )
