"""An import in a child process: this process starts it, hears how far it is, limits it, and moves what it made.

The child has a staging folder (version_folder.py), limits (limits.py), and ends with this process, whatever ends that.
Whatever ends the child is one sentence: its own, or its signal, or the limit that it reached, with its last stage.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from types import FrameType
from typing import IO

from app.core.machine_memory import available_bytes, resident_bytes
from app.importing.order import CannotImport, ImportOrder
from app.importing.result import ImportResult
from app.importing.version_folder import files_below, publish, staging_beside

#: Seconds to wait for the end of a child that was killed. Chosen.
_END_S = 5.0

#: Seconds between two looks at the memory of a child. Chosen.
_LOOK_S = 0.2

#: Memory of an import: so much, and so many times the bytes of its source, which is there as variables of the source,
#: of the export, and as constants; at most this share of what is available. Chosen.
_LEAST_BYTES, _TIMES, _SHARE = 6 << 30, 12, 0.9

#: The program of a child: its module path is that of its parent.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from app.importing.child import main; main()"

#: Environment of the child. Each library gets a folder of its own that is removed, and no network anyway.
_ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "1",
}
_FOLDERS = ("TMPDIR", "KERAS_HOME", "XDG_CACHE_HOME", "HF_HOME", "KAGGLEHUB_CACHE", "TFHUB_CACHE_DIR")

#: Bytes of the end of a child's standard error that are searched for its last words, and characters that are told.
_LAST_BYTES, _LAST_WORDS = 64 * 1024, 300

#: The beginning of a line of TensorFlow's libraries: letter, date, time, thread and place.
_PREFIX = re.compile(r"^([IWEF]\d{4} |\d{4}-\d\d-\d\d )\S+[^\]]*\] ")

#: Lines that tell why a process ends, and those that say that it had no memory.
_FATAL = re.compile(r"^F\d{4} |: F |Check failed|terminate called|^[A-Z]\w*(Error|Exception)\b")
_NO_MEMORY = re.compile(r"bad_alloc|MemoryError|[Oo]ut of memory|OOM when|Cannot allocate memory")


def import_in_child(order: ImportOrder, kind: str, report: Callable[[str], None]) -> ImportResult:
    """Imports a source of this format (app/repository/disk/importable.py), blocking.

    Args:
        report: called with each stage.

    Raises:
        CannotImport: it cannot be imported; nothing is left.
        OSError: the folder of the destination cannot be written.
    """
    order = replace(order, memory_bytes=order.memory_bytes or memory_for(Path(order.source)))
    with _terminable(), staging_beside(Path(order.destination)) as staging, _child(staging) as child:
        result = child.run(order, kind, report)
        child.end()  # before its files are moved
        report("the version is written")
        publish(staging / "version", Path(order.destination))
    return result


def memory_for(source: Path) -> int:
    """The most bytes for the import of a source."""
    own = sum(path.stat().st_size for path in (source, *files_below(source)))
    return int(min(_LEAST_BYTES + _TIMES * own, _SHARE * available_bytes()))


@contextmanager
def _terminable() -> Iterator[None]:
    """A block that SIGTERM and SIGINT end as an exception does, so that what was begun is removed."""

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, disposition in before.items():
            signal.signal(number, disposition)


@contextmanager
def _child(staging: Path) -> Iterator[_Child]:
    child = _Child(staging)
    try:
        yield child
    finally:
        child.end()


class _Child:
    """A child process, the socket to it, and its standard error."""

    def __init__(self, staging: Path) -> None:
        self._staging = staging
        self._stage = "the process starts"
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`; it has no name
        temporary = staging / "temporary"
        temporary.mkdir()
        environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
        environment |= _ENVIRONMENT | dict.fromkeys(_FOLDERS, str(temporary))
        ours, theirs = socket.socketpair()
        self._connection = ours
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and nothing that users give
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(os.path.abspath, sys.path)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                env=environment,
                start_new_session=True,  # an interrupt from the terminal reaches this process, which ends the child
            )

    def run(self, order: ImportOrder, kind: str, report: Callable[[str], None]) -> ImportResult:
        """Sends the order, and hears the child until its result. Raises CannotImport."""
        message = {"order": asdict(order), "kind": kind, "staging": str(self._staging)}
        with suppress(ConnectionError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        for what, text in self._lines(order):
            if what == "stage":
                self._stage = text
                report(text)
            elif what == "result":
                return ImportResult(**json.loads(text))
            else:
                raise CannotImport(self._too_large(order) if _NO_MEMORY.search(text) else text)
        raise CannotImport(self._why_ended(order))

    def _lines(self, order: ImportOrder) -> Iterator[tuple[str, str]]:
        """The lines of the child, until it ends. Raises CannotImport: it takes too long, or too much memory."""
        until_s = time.monotonic() + order.limit_s
        received = b""
        while True:
            if time.monotonic() > until_s:
                raise CannotImport(
                    f"it took longer than {order.limit_s:g} s (--limit-s); the last stage: {self._stage}"
                )
            if order.memory_bytes < resident_bytes(self._process.pid) < inf:
                raise CannotImport(self._too_large(order))
            self._connection.settimeout(_LOOK_S)
            try:
                more = self._connection.recv(1 << 16)
            except TimeoutError:
                continue
            except ConnectionError:
                return
            if not more:
                return
            *lines, received = (received + more).split(b"\n")
            yield from map(_line, lines)

    def _too_large(self, order: ImportOrder) -> str:
        return (
            f"it needs more than {order.memory_bytes / 2**30:.1f} GiB of memory (--memory-gib); "
            f"the last stage: {self._stage}"
        )

    def _why_ended(self, order: ImportOrder) -> str:
        """The child's signal or exit code, its last stage, and its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        code = self._process.returncode
        words = self._last_words()
        if _NO_MEMORY.search(words):
            return self._too_large(order)
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (the system may have had no memory for it)"
        told = f"; its last words: {words}" if words else ""
        return f"the process that imports it ended {how}; the last stage: {self._stage}{told}"

    def _last_words(self) -> str:
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = [line for line in self._words.read().decode(errors="replace").splitlines() if line.strip()]
        fatal = [line for line in lines if _FATAL.search(line)]
        return " ".join(_PREFIX.sub("", (fatal or lines or [""])[-1]).split())[:_LAST_WORDS]

    def end(self) -> None:
        """Ends the child, and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # it reads from storage that does not answer
            self._process.wait(_END_S)
        self._connection.close()
        self._words.close()


def _line(line: bytes) -> tuple[str, str]:
    what, text = json.loads(line)
    return what, text


def kind_or_refusal(source: Path, kind: str) -> str:
    """The format of a source. Raises CannotImport: it has none that can be imported."""
    if not source.exists() and kind != "checkpoint":  # which may be named by what its files' names have in common
        raise CannotImport(f"there is no file or folder {source}")
    # The read of a pipe, or of a device, may never end.
    for path in files_below(source) if source.is_dir() else filter(Path.exists, [source]):
        if not path.is_file():
            raise CannotImport(f"{path} is no regular file")
    if kind:
        return kind
    raise CannotImport(
        f"{source} is nothing that can be imported; expected is a .keras, .h5, .hdf5, .pb, .meta or .tflite file, or a "
        "folder with MLmodel, saved_model.pb, checkpoint or tf_model.h5"
    )
