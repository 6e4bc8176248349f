"""Loads versions of models in a child process, one after another: what ends the child is told of the version.

A child serves many versions, since its start takes seconds; after one that ended it or took too long the next version
gets a new child. It ends with this process, whatever ends that, and leaves no file.
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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from app.cli.trials.trial_messages import Kind, TrialVersion

#: Seconds to wait for the end of a child that was killed. Chosen.
_END_S = 5.0

#: The program of a child: its module path is that of its parent.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from app.cli.trials.trial_process import main; main()"

#: Bytes of the end of a child's standard error that are searched for its last words, and characters that are told.
_LAST_BYTES, _LAST_WORDS = 64 * 1024, 500

#: The beginning of a line of TensorFlow's libraries: letter, date, time, thread and place.
_PREFIX = re.compile(r"^([IWEF]\d{4} |\d{4}-\d\d-\d\d )\S+[^\]]*\] ")

#: Lines that tell why a process ends.
_FATAL = re.compile(r"^F\d{4} |: F |Check failed|terminate called|^[A-Z]\w*(Error|Exception)\b")


@dataclass(slots=True)
class Trial:
    """The result of trying a version: the lines that a server would log, notes, and faults.

    rowless: the outputs that do not follow the rows of the inputs: (signature, output) -> what it is instead.
    """

    found: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    rowless: dict[tuple[str, str], str] = field(default_factory=dict)


class ModelTrials:
    """The child process that loads versions, until `close`.

    Args:
        limit_s: seconds that a version may take, the start of its child included.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._child: _Child | None = None

    def of(self, version: TrialVersion) -> Trial:
        """Loads a version and calls its signatures, blocking."""
        if self._child is None:
            self._child = _Child()
        trial = Trial()
        try:
            for kind, text in self._child.lines(version, time.monotonic() + self._limit_s):
                if kind is Kind.DONE:
                    return trial
                _note(trial, kind, text)
        except TimeoutError:
            trial.faults.append(
                f"it took longer than {self._limit_s:g} s (--limit-s); its last step: {self._child.stage}"
            )
        else:
            trial.faults.append(self._child.why_ended())
        self.close()
        return trial

    def close(self) -> None:
        """Ends the child."""
        child, self._child = self._child, None
        if child is not None:
            child.end()


def _note(trial: Trial, kind: Kind, text: str) -> None:
    if kind is Kind.ROWLESS:
        signature, output, misfit = json.loads(text)
        trial.rowless[signature, output] = misfit
    else:
        lines = {Kind.FOUND: trial.found, Kind.NOTE: trial.notes, Kind.FAULT: trial.faults}
        lines[kind].append(text)


class _Child:
    """A child process, the socket to it, and its standard error."""

    def __init__(self) -> None:
        self.stage = "the process starts"
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`; it has no name
        ours, theirs = socket.socketpair()
        self._connection = ours
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and nothing that users give
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(os.path.abspath, sys.path)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                start_new_session=True,  # an interrupt from the terminal reaches this process, which ends the child
            )

    def lines(self, version: TrialVersion, until_s: float) -> Iterator[tuple[Kind, str]]:
        """The lines of the child, until it ends. Raises TimeoutError at `until_s`, monotonic seconds."""
        received = b""
        with suppress(ConnectionError):
            self._connection.sendall(json.dumps(version).encode() + b"\n")
            while True:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                self._connection.settimeout(left_s)
                more = self._connection.recv(1 << 16)
                if not more:
                    return
                *lines, received = (received + more).split(b"\n")
                for line in lines:
                    kind, text = json.loads(line)
                    if kind == Kind.STAGE:
                        self.stage = text
                    else:
                        yield Kind(kind), text

    def why_ended(self) -> str:
        """The child's signal or exit code, its last step, and its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        code = self._process.returncode
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (the system may have had no memory for it)"
        words = self._last_words()
        told = f"; its last words: {words}" if words else ""
        return f"the process that loads it ended {how}; its last step: {self.stage}{told}"

    def _last_words(self) -> str:
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = [line for line in self._words.read().decode(errors="replace").splitlines() if line.strip()]
        fatal = [line for line in lines if _FATAL.search(line)]
        return _PREFIX.sub("", (fatal or lines or [""])[-1])[:_LAST_WORDS]

    def end(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # it reads from storage that does not answer
            self._process.wait(_END_S)
        self._connection.close()
        self._words.close()
