"""Outputs: files that are written without waiting for the reader, such as a collector of logs that stalls.

Standard output and error are shared: the shell, other processes of a container and children write to the same open file
description, so O_NONBLOCK set there would change their writes, too. By kind of file:

1. A pipe or a terminal is opened once more (`/proc/self/fd/N`). The new description belongs to this process and its
   children alone, and does not wait. It takes the place of the old one, so that libraries of C and C++ do not wait
   either: their text for a full pipe is lost.
2. A socket cannot be opened again, but sends without waiting where a call says so. Text of libraries waits there.
3. Any other file, and a device such as /dev/null, waits for no reader.
4. A pipe that may not be opened again (it belongs to another user, or there is no /proc) waits: a thread writes.
"""

from __future__ import annotations

import os
import select
import socket
import stat


class FileOutput:
    """A file descriptor that lines are written to.

    waits: whether `write` may wait for the reader, so that a thread must call it.
    """

    def __init__(self, descriptor: int, *, waits: bool = False) -> None:
        self._descriptor = descriptor
        self.waits = waits

    def write(self, data: bytes) -> int:
        """The number of bytes written. Raises BlockingIOError: there is no room; OSError: it cannot be written."""
        return os.write(self._descriptor, data)

    def wait(self) -> None:
        """Returns when there may be room again, or no reader any more."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.poll()


class SocketOutput(FileOutput):
    """A connected socket, as systemd gives a service for its journal."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection.fileno())
        self._connection = connection

    def write(self, data: bytes) -> int:
        return self._connection.send(data, socket.MSG_DONTWAIT)


def open_output(descriptor: int) -> FileOutput:
    """An output to the file of `descriptor`, which stays open; a pipe or a terminal there does not wait afterwards.

    A later file in the place of `descriptor` does not change the output.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # closed: each write fails
        return FileOutput(descriptor)
    if stat.S_ISSOCK(mode):
        return SocketOutput(socket.socket(fileno=os.dup(descriptor)))
    if not is_read(descriptor):
        return FileOutput(os.dup(descriptor))
    return _opened_again(descriptor)


def is_read(descriptor: int) -> bool:
    """Whether the file is a pipe or a terminal, where a write waits for the reader."""
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor)
    except OSError:
        return False


def _opened_again(descriptor: int) -> FileOutput:
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # no right to, no reader, or no /proc
        return FileOutput(os.dup(descriptor), waits=os.get_blocking(descriptor))
    os.dup2(own, descriptor)
    return FileOutput(own)
