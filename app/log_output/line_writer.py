"""The writer of lines to an output, in their order, which never makes the caller wait.

1. A line is written at once while the output has room: the last words of a process that ends are out.
2. Lines without room wait in memory, at most `most_bytes`, and a thread writes them as room comes: in batches of whole
   lines that are no longer than a pipe takes in one piece, so that lines of several processes do not mix.
3. While the room in memory is used up, lines are dropped and counted, until half of it is free again. A notice takes
   their place. Lines of errors have a quarter more room: they say why a process ends.
4. Only `flush` waits for the reader, for as long as its caller says, and the thread, which holds up no exit.
5. A forked process begins without lines: the process that logged a waiting line writes it.
"""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from app.log_output.outputs import FileOutput

#: Chosen: some 8,000 lines of the access log, and nothing beside a server's memory.
MOST_BYTES = 1024 * 1024

#: The bytes that a pipe takes in one piece or not at all (POSIX), however many processes write to it.
_BATCH_BYTES = select.PIPE_BUF

#: All writers of this process, for forks.
_writers: weakref.WeakSet[LineWriter] = weakref.WeakSet()


class LineWriter:
    """The lines of one output. Called on any thread, also within a call of itself (by a handler of signals).

    Args:
        notice: makes the line that says how many lines were dropped; None for no line.
        start: runs a function on a thread. Raises RuntimeError if no thread can be started any more.

    Attributes:
        dropped: lines that were not written, since the process began.
    """

    def __init__(
        self,
        output: FileOutput,
        notice: Callable[[int], bytes] | None = None,
        most_bytes: int = MOST_BYTES,
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._output = output
        self._notice = notice
        self._most_bytes = most_bytes
        self._start = start or _start_thread
        self._begin()
        _writers.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()  # before all else: another thread of the parent may have held it
        self.dropped = 0
        self._untold = 0  # dropped lines without a notice
        self._full = False
        self._behind = False  # lines wait for the thread, or it writes
        self._lines: deque[bytes] = deque()
        self._held = 0  # bytes in `_lines`
        self._caught_up = threading.Event()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._has_thread = False

    def put(self, line: bytes, *, error: bool = False) -> None:
        """Write one line or several, which end with a line feed. Never raises for the output."""
        with self._lock:
            if self._behind:
                self._keep(line, error=error)
            elif self._output.waits:
                self._fall_behind(line)
            elif rest := self._write_now(line):
                self._fall_behind(rest)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all lines are written. False if that takes longer."""
        with self._lock:
            if not self._behind:
                return True
            caught_up = self._caught_up
        return caught_up.wait(timeout_s)

    def write_behind(self) -> None:
        """Write the waiting lines; returns when none waits. For the thread."""
        while batch := self._next_batch():
            if not self._write(batch):
                return

    # --- with room ---

    def _write_now(self, line: bytes) -> bytes:
        """Write a line; returns the part that had no room."""
        untold = self._untold
        told = self._notice_of_dropped() + line
        try:
            return told[self._output.write(told) :]
        except BlockingIOError:
            return told
        except OSError:  # there is no reader
            self._untold = untold
            self._drop(line)
            return b""

    # --- without ---

    def _fall_behind(self, line: bytes) -> None:
        self._behind = True
        self._caught_up.clear()
        self._lines.append(line)  # also one that is longer than the room: its beginning may be written
        self._held += len(line)
        try:
            if not self._has_thread:
                self._start(self._run)
                self._has_thread = True
        except RuntimeError:  # the interpreter ends
            self._give_up()
        else:
            self._wake.put(None)

    def _keep(self, line: bytes, *, error: bool) -> None:
        self._full = self._held > self._most_bytes // 2 if self._full else self._held + len(line) > self._most_bytes
        has_room = not self._full or (error and self._held + len(line) <= self._most_bytes * 5 // 4)
        if not has_room:
            self._drop(line)
            return
        self._lines.append(self._notice_of_dropped() + line)
        self._held += len(self._lines[-1])

    def _drop(self, lines: bytes) -> None:
        number = lines.count(b"\n") or 1
        self.dropped += number
        self._untold += number

    def _notice_of_dropped(self) -> bytes:
        """The notice of dropped lines; empty if none was dropped."""
        number, self._untold = self._untold, 0
        return self._notice(number) if number and self._notice is not None else b""

    def _give_up(self) -> None:
        for each in self._lines:
            self._drop(each)
        self._lines.clear()
        self._catch_up()

    def _catch_up(self) -> None:
        self._held = 0
        self._full = self._behind = False
        self._caught_up.set()

    # --- the thread ---

    def _run(self) -> None:
        while True:
            self._wake.get()
            self.write_behind()

    def _next_batch(self) -> bytes:
        """Whole lines, at least one; empty if none waits."""
        with self._lock:
            batch: list[bytes] = []
            room = _BATCH_BYTES
            while self._lines and (not batch or len(self._lines[0]) <= room):
                batch.append(self._lines.popleft())
                room -= len(batch[-1])
            self._held -= sum(map(len, batch))
            if not batch and (told := self._notice_of_dropped()):
                return told
            if not batch:
                self._catch_up()
            return b"".join(batch)

    def _write(self, batch: bytes) -> bool:
        """Write a batch, without the lock, since it waits. False if there is no reader: waiting lines are dropped."""
        while batch:
            try:
                batch = batch[self._output.write(batch) :]
            except BlockingIOError:
                self._output.wait()
            except OSError:
                with self._lock:
                    self._lines.appendleft(batch)
                    self._give_up()
                return False
        return True

    def __repr__(self) -> str:
        return f"<LineWriter, {self._held} bytes wait, {self.dropped} lines dropped>"


def _start_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="log", daemon=True).start()


def _after_fork() -> None:
    for each in list(_writers):
        each._begin()


os.register_at_fork(after_in_child=_after_fork)
