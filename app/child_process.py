"""A child process that gets messages and says lines: what ends it is told in words.

The child is this interpreter with another program. A socket is its standard input: messages go in, lines of JSON come
out, each a kind and a text; lines of the kind 'stage' say what it does next. It ends with this process, whatever ends
that, if its program sees to that, and leaves no file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO

#: Seconds to wait for the end of a child that was killed. Chosen.
_END_S = 5.0

#: Bytes of the end of a child's standard error that are searched for its last words, and characters that are told.
_LAST_BYTES, _LAST_WORDS = 64 * 1024, 500

#: The beginning of a line of TensorFlow's libraries: letter, date, time, thread and place.
_PREFIX = re.compile(r"^([IWEF]\d{4} |\d{4}-\d\d-\d\d )\S+[^\]]*\] ")

#: Lines that tell why a process ends.
_FATAL = re.compile(r"^F\d{4} |: F |Check failed|terminate called|^[A-Z]\w*(Error|Exception)\b")


class ChildProcess:
    """A child process, the socket to it, and its standard error.

    Args:
        program: it gets the module path of this process as its arguments.
        environment: that of the child; None for this one's.

    Attributes:
        pid: its number.
        stage: what it said last that it does.
    """

    def __init__(self, program: str, environment: Mapping[str, str] | None = None) -> None:
        self.stage = "the process starts"
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`; it has no name
        ours, theirs = socket.socketpair()
        self._connection = ours
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and nothing that users give
                [sys.executable, "-I", "-S", "-c", program, *map(os.path.abspath, sys.path)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                env=environment,
                start_new_session=True,  # an interrupt from the terminal reaches this process, which ends the child
            )
        self.pid = self._process.pid

    def lines(
        self, message: object, until_s: float, look: Callable[[], None] | None = None, every_s: float = 0.2
    ) -> Iterator[tuple[str, str]]:
        """Sends a message, and gives the lines of the child until it ends.

        Args:
            until_s: monotonic seconds.
            look: called every `every_s` seconds at least.

        Raises TimeoutError at `until_s`.
        """
        received = b""
        with suppress(ConnectionError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")
            while True:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                if look is not None:
                    look()
                self._connection.settimeout(left_s if look is None else min(every_s, left_s))
                try:
                    more = self._connection.recv(1 << 16)
                except TimeoutError:
                    continue
                if not more:
                    return
                *lines, received = (received + more).split(b"\n")
                for line in lines:
                    kind, text = json.loads(line)
                    if kind == "stage":
                        self.stage = text
                    yield kind, text

    def why_ended(self) -> str:
        """'ended by SIGSEGV; its last step: ...': its signal or exit code, its last step, and its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        code = self._process.returncode
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (the system may have had no memory for it)"
        words = self._last_words()
        told = f"; its last words: {words}" if words else ""
        return f"ended {how}; its last step: {self.stage}{told}"

    def _last_words(self) -> str:
        """The last line of its standard error that says why it ends, else the last one."""
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = [line for line in self._words.read().decode(errors="replace").splitlines() if line.strip()]
        fatal = [line for line in lines if _FATAL.search(line)]
        return " ".join(_PREFIX.sub("", (fatal or lines or [""])[-1]).split())[:_LAST_WORDS]

    def end(self) -> None:
        """Ends the child, and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # it reads from storage that does not answer
            self._process.wait(_END_S)
        self._connection.close()
        self._words.close()
