"""Closes a listening socket without a reset for clients that have just connected.

The kernel resets every connection that waits to be accepted when its listening socket closes, with the request that the
client may have sent already. So a filter on the socket (socket(7), SO_ATTACH_FILTER) first drops each segment that
opens a connection (SYN without ACK, RFC 9293, section 3.5). Handshakes whose SYN was answered already are completed.
When all of those connections are accepted, the socket closes. A client whose first segment was
dropped sends it again after a second: it is refused, or reaches another process that listens there.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import select
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from app.transports.waiting import wait_while

# linux/filter.h, asm-generic/socket.h
_LOAD_BYTE, _JUMP_IF_ANY_BIT, _RETURN_CONSTANT, _SO_ATTACH_FILTER = 0x30, 0x45, 0x06, 26

#: Passes the segments of connections that were begun (RST or ACK), and drops all others: code, jumps, constant. Sockets
#: that are accepted inherit it.
_FLAGS_OFFSET, _RST_OR_ACK, _WHOLE = 13, 0x14, 0xFFFFFFFF
_ONLY_WHAT_WAS_BEGUN = (
    (_LOAD_BYTE, 0, 0, _FLAGS_OFFSET),
    (_JUMP_IF_ANY_BIT, 0, 1, _RST_OR_ACK),
    (_RETURN_CONSTANT, 0, 0, _WHOLE),
    (_RETURN_CONSTANT, 0, 0, 0),
)

#: Seconds that begun handshakes have to complete, some round trips. A client that never answers (a flood) delays the
#: end no longer. Chosen.
_HANDSHAKES_S = 0.5

#: Seconds between two looks for handshakes that are not complete. Chosen.
_LOOK_AGAIN_S = 0.005

#: Turns of the event loop that connections may take to be accepted, where the kernel takes no filter: they may come for
#: ever then. Chosen: several times the 2,048 connections that may wait.
_MOST_TURNS = 10_000

#: asyncio makes a connection in a task, whose callback tells its protocol. Chosen: twice what that takes.
_TURNS_TO_CONNECT = 8


async def accept_the_last(listening: Iterable[int]) -> None:
    """Returns when no connection waits at these listening sockets, given as file descriptors, or can be made there."""
    # 1. No handshake begins any more.
    files = list(listening)
    for file in files:
        _drop_what_begins(file)

    # 2. Handshakes that were begun are completed.
    ports = {_port(file) for file in files}
    end_s = asyncio.get_running_loop().time() + _HANDSHAKES_S
    await wait_while(lambda: _handshakes(ports), end_s, _LOOK_AGAIN_S)

    # 3. Connections that wait are accepted.
    for _ in range(_MOST_TURNS):
        await asyncio.sleep(0)  # the event loop accepts
        if not any(map(_waits, files)):
            break
    for _ in range(_TURNS_TO_CONNECT):
        await asyncio.sleep(0)  # and makes connections of what it accepted


def _drop_what_begins(file: int) -> None:
    """Attaches the filter. Does nothing where the kernel has no such filters."""
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in _ONLY_WHAT_WAS_BEGUN))
    length = len(_ONLY_WHAT_WAS_BEGUN)
    with suppress(OSError), socket.socket(fileno=os.dup(file)) as same:
        same.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", length, ctypes.addressof(program)))


def _port(file: int) -> int:
    """The port of a listening socket; 0 for a Unix socket."""
    with socket.socket(fileno=os.dup(file)) as same:
        name = same.getsockname()
    return int(name[1]) if isinstance(name, tuple) else 0


def _handshakes(ports: Iterable[int]) -> bool:
    """Is a handshake at one of these ports begun and not complete (SYN-RECEIVED, 03 in proc(5))?

    It may be one of another process that listens on the same port. False where the kernel has no such tables.
    """
    begun = [re.compile(rb":%04X [0-9A-F]+:[0-9A-F]{4} 03 " % port) for port in ports if port]
    tables = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            tables.append(Path("/proc/net", name).read_bytes())
    return any(pattern.search(table) for pattern in begun for table in tables)


def _waits(file: int) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))
