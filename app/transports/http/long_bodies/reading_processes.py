"""Long bodies are read in other processes: a parser keeps the GIL for as long as one call takes, at worst for seconds.

1. A process starts when it is first needed, and reads many bodies. There are at most `_MOST`; further bodies wait.
   Only one of them reads a very long body at a time, so these do not hold up all others.
2. A body that is not read by its deadline ends its process. A process that breaks is replaced, and the body is read
   once more, never in the server: what broke the process might break the server.
3. In a container with a limit, a process takes no more memory than is reserved for its body (body_room.py). A process
   that is still large after a body is replaced. So no body ends the server or the process of another body.
4. Where no process can be started, bodies are read in threads of the server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from math import isfinite
from typing import TypeVar

from app.core.errors import (
    BodyOverMemory,
    DeadlineExceeded,
    InferenceFailed,
    NoMemoryLeft,
    ServingError,
    ShuttingDown,
)
from app.transports.http.long_bodies.reader import TOO_MUCH
from app.transports.http.long_bodies.reading_process import ProcessEnded, ReadingProcess
from app.transports.memory.body_room import BodyRoom

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Chosen: with two, a body of seconds does not hold up the next one.
_MOST = 2

#: A body of this many bytes is very long. Chosen: it takes a process for seconds at worst.
_VERY_LONG_BYTES = 8 * 1024 * 1024

#: How often a body is given to a process before it is rejected.
_TRIES = 2

#: In a container with a limit, a process that is larger after a body ends. Chosen: a new one has some 50 MB.
_LARGEST_IDLE_BYTES = 96 * 2**20


class ReadingProcesses:
    """Processes that read long bodies. Made on any thread; `read` and `close` are called on the event loop.

    `room`: memory for what bodies become; without it there is no limit.
    """

    def __init__(self, room: BodyRoom | None = None) -> None:
        self._room = room or BodyRoom()
        self._room.end_idle = self._end_idle
        self._threads = ThreadPoolExecutor(_MOST, "long_bodies")
        self._very_long = asyncio.Semaphore(_MOST - 1)
        self._lock = threading.Lock()
        self._idle: list[ReadingProcess] = []
        self._busy: set[ReadingProcess] = set()
        self._closed = False
        self._told = False

    async def read(
        self, work: Callable[[ReadingProcess], T], in_thread: Callable[[], T], left_s: float, size: int
    ) -> T:
        """The result of `work` with a process, or of `in_thread` if none can be started. Both run in a thread.

        Args:
            left_s: seconds from now until the deadline.
            size: the bytes of the body.

        Raises:
            DeadlineExceeded: no time is left.
            InferenceFailed: the process ended each time.
            NoMemoryLeft, BodyOverMemory: likewise, since memory ran out.
            ShuttingDown: `close` was called.
        """
        deadline_s = time.monotonic() + left_s
        async with self._very_long if size >= _VERY_LONG_BYTES else nullcontext():
            if self._closed:
                raise ShuttingDown("The server is shutting down")
            loop = asyncio.get_running_loop()
            with self._room.reading(size) as most:
                return await loop.run_in_executor(
                    self._threads, self._read, work, in_thread, lambda: deadline_s - time.monotonic(), most
                )

    def close(self) -> None:
        """Ends all processes. Never waits."""
        with self._lock:
            self._closed = True
            for process in self._busy:
                process.kill()
        self._end_idle()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end_idle(self) -> None:
        """Ends idle processes, whose memory is needed."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    # --- in a thread ---

    def _read(
        self,
        work: Callable[[ReadingProcess], T],
        in_thread: Callable[[], T],
        time_left: Callable[[], float],
        most_bytes: float,
    ) -> T:
        # 1. A process reads the body; a process that ends is replaced.
        killed = False
        for _ in range(_TRIES):
            try:
                process = self._ready_process(time_left)
                if process is None:
                    return in_thread()
                process.bound(most_bytes)
                return self._work(process, work)
            except TimeoutError:
                raise DeadlineExceeded("The deadline passed before the request was read") from None
            except ProcessEnded as error:
                killed = error.killed
                if self._closed:
                    raise ShuttingDown("The server is shutting down") from None
                logger.warning("A process that read a long body ended; a new one takes its place")

        # 2. Each try ended its process: memory is the reason that is known, if any.
        if killed:
            raise NoMemoryLeft("The system ended the process that read this body, as where memory runs out; try again")
        if isfinite(most_bytes):
            raise BodyOverMemory(TOO_MUCH)
        raise InferenceFailed("The process that read this request ended, twice")

    def _work(self, process: ReadingProcess, work: Callable[[ReadingProcess], T]) -> T:
        try:
            result = work(process)
        except ServingError:
            self._put_back(process)
            raise
        except ProcessEnded as error:
            error.killed = not self._closed and process.was_killed
            self._drop(process)
            raise
        except BaseException:
            self._drop(process)
            raise
        self._put_back(process)
        return result

    def _ready_process(self, time_left: Callable[[], float]) -> ReadingProcess | None:
        """A process that is ready; None if none can be started. Raises TimeoutError; ProcessEnded if all are closed."""
        while True:
            try:
                process = self._take()
            except OSError as error:
                self._tell(error)
                return None
            try:
                process.begin(time_left)
                return process
            except TimeoutError:  # the request's time is over; the process may be ready for the next one
                (self._drop if process.hangs else self._keep)(process)
                raise
            except ProcessEnded as error:  # the next one is tried, unless none has ever become ready
                self._drop(process)
                if self._closed:
                    raise
                if not process.was_ready:
                    self._tell(error)
                    return None

    def _take(self) -> ReadingProcess:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is not None and process.ended:  # its channel may still hold earlier messages
            process.end()
            return self._take()
        process = process or ReadingProcess()
        with self._lock:
            self._busy.add(process)
            if self._closed:  # it may have been started meanwhile
                process.kill()
        return process

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            logger.warning("No process could be started to read long bodies, so threads read them: %r", error)

    def _put_back(self, process: ReadingProcess) -> None:
        if isfinite(self._room.limit) and process.resident_bytes > _LARGEST_IDLE_BYTES:
            self._drop(process)
            return
        try:
            process.finish()
        except (TimeoutError, ProcessEnded):
            self._drop(process)
        else:
            self._keep(process)

    def _keep(self, process: ReadingProcess) -> None:
        with self._lock:
            self._busy.discard(process)
            if not self._closed:
                self._idle.append(process)
                return
        process.end()

    def _drop(self, process: ReadingProcess) -> None:
        with self._lock:
            self._busy.discard(process)
        process.end()

    def __repr__(self) -> str:
        return f"<ReadingProcesses {len(self._idle)} idle, {len(self._busy)} busy>"
