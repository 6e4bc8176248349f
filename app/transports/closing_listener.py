"""Closes a listening socket without a reset for clients that have just connected.

The kernel resets every connection that waits to be accepted when its listening socket closes, with the request that the
client may have sent already. So the socket first gets a filter that drops what arrives at it (socket(7),
SO_ATTACH_FILTER): no connection is made any more. Then all that were made are accepted, and it closes. A client whose
first packet was dropped sends it again after a second: it is refused, or reaches another process that listens there.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress

# linux/filter.h, asm-generic/socket.h
_RETURN_CONSTANT, _SO_ATTACH_FILTER = 0x06, 26

#: Turns of the event loop that connections may take to be accepted, where the kernel takes no filter: they may come for
#: ever then. Chosen: several times the 2,048 connections that may wait.
_MOST_TURNS = 10_000

#: asyncio makes a connection in a task, whose callback tells its protocol. Chosen: twice what that takes.
_TURNS_TO_CONNECT = 8


async def accept_the_last(listening: Iterable[int]) -> None:
    """Returns when no connection waits at these listening sockets, given as file descriptors, or can be made there."""
    files = list(listening)
    for file in files:
        _drop_what_arrives(file)
    for _ in range(_MOST_TURNS):
        await asyncio.sleep(0)  # the event loop accepts
        if not any(map(_waits, files)):
            break
    for _ in range(_TURNS_TO_CONNECT):
        await asyncio.sleep(0)  # and makes connections of what it accepted


def _drop_what_arrives(file: int) -> None:
    """Does nothing where the kernel has no such filters."""
    program = ctypes.create_string_buffer(struct.pack("=HBBI", _RETURN_CONSTANT, 0, 0, 0))
    with suppress(OSError), socket.socket(fileno=os.dup(file)) as same:
        same.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(program)))


def _waits(file: int) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))
