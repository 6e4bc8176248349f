"""A process that reads a long body, as the server sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import isinf
from resource import RLIM_INFINITY, RLIMIT_DATA, prlimit
from typing import Any, Protocol, TypeVar

from app.core.machine_memory import data_bytes, resident_bytes
from app.transports.http.long_bodies.channel import Channel
from app.transports.http.long_bodies.reader import BUG, ERROR

T = TypeVar("T")

#: Seconds after which a process that is still not ready is given up. Chosen: a start takes 0.3 s of CPU.
_NOT_READY_S = 60.0

#: Seconds in which a process ends whose connection has ended. Chosen.
_END_S = 1.0

_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from app.transports.http.long_bodies.reader import main; main()"


class Reader(Protocol):
    """A reader of a body, function by function."""

    def keep(self, function: Callable[..., object], *args: object) -> None:
        """Calls the function, and keeps its result for `ask`. Raises as `ask`."""

    def ask(self, function: Callable[..., T], *args: object) -> T:
        """The result of the function, which gets what is kept and then `args`. Raises as the function."""


class ReadHere:
    """A Reader in this process, where no other can be started."""

    def __init__(self) -> None:
        self._kept: Any = None

    def keep(self, function: Callable[..., object], *args: object) -> None:
        self._kept = function(*args)

    def ask(self, function: Callable[..., T], *args: object) -> T:
        return function(self._kept, *args)


class ProcessEnded(Exception):
    """The process ended before it answered. `killed`: by a signal that the system sends where memory runs out."""

    killed = False


class ReadingProcess:
    """One process, and the connection to it. Functions are module-level, and what they take and return is pickled."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = _spawn(theirs)
        except OSError:
            ours.close()
            raise
        self._channel = Channel(ours)
        self._waits_since_s = time.monotonic()
        self.was_ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def hangs(self) -> bool:
        """Has it not become ready for long?"""
        return time.monotonic() - self._waits_since_s > _NOT_READY_S

    def begin(self, time_left: Callable[[], float]) -> None:
        """Waits until it is ready for a body. Raises TimeoutError, ProcessEnded."""
        self.limit(time_left)
        self._receive()
        self.was_ready = True

    def bound(self, more_bytes: float) -> None:
        """Limits the memory that the process may take to so much more; then it raises MemoryError, or ends."""
        with suppress(OSError):
            most = RLIM_INFINITY if isinf(more_bytes) else int(data_bytes(self.pid) + more_bytes)
            prlimit(self.pid, RLIMIT_DATA, (most, RLIM_INFINITY))

    @property
    def was_killed(self) -> bool:
        """Did it end by SIGKILL? Waits until it has ended."""
        try:
            return self._process.wait(_END_S) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False

    @property
    def resident_bytes(self) -> float:
        return resident_bytes(self.pid)

    def limit(self, time_left: Callable[[], float]) -> None:
        """Seconds that the next steps may take."""
        self._channel.time_left = time_left

    def keep(self, function: Callable[..., object], *args: object) -> None:
        """Calls the function there, and keeps its result for `ask`. Raises as `ask`."""
        self._call(True, function, args)

    def ask(self, function: Callable[..., T], *args: object) -> T:
        """The result of the function, which gets what is kept and then `args`.

        Raises:
            ServingError: as the function.
            TimeoutError, ProcessEnded: no answer came.
        """
        result: T = self._call(False, function, args)
        return result

    def finish(self) -> None:
        """Lets the process forget the body. Raises ProcessEnded."""
        self.limit(lambda: _NOT_READY_S)
        self._waits_since_s = time.monotonic()
        self._send(None)

    def kill(self) -> None:
        """Ends the process, from any thread: a thread that waits for its answer gets ProcessEnded."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def end(self) -> None:
        """Kills the process, and closes the connection to it. Never waits."""
        self.kill()
        self._channel.close()
        threading.Thread(target=self._process.wait, name="reading process ends", daemon=True).start()

    def _call(self, keep: bool, function: Callable[..., object], args: tuple[object, ...]) -> Any:
        self._send((keep, function, args))
        kind, content = self._receive()
        if kind == ERROR:
            kind_of_error, text, retry_after_s = content
            raise kind_of_error(text).retry_in(retry_after_s)
        if kind == BUG:
            raise RuntimeError(f"In the process that reads long bodies: {content}")
        return content

    def _send(self, content: object) -> None:
        try:
            self._channel.send(content)
        except TimeoutError:
            raise
        except OSError as error:
            raise ProcessEnded from error

    def _receive(self) -> Any:
        try:
            return self._channel.receive()
        except TimeoutError:
            raise
        except (OSError, EOFError) as error:
            raise ProcessEnded from error

    def __repr__(self) -> str:
        return f"<ReadingProcess {self.pid}, {'was' if self.was_ready else 'not yet'} ready>"


def _spawn(connection: socket.socket) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which a terminal's keys do not reach. It ends with its connection."""
    path = [os.path.abspath(entry) for entry in sys.path]
    with connection:
        return subprocess.Popen(  # noqa: S603 - this interpreter, and nothing that users give
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *path],
            stdin=connection.fileno(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
