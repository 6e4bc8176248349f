"""An import in a child process: this process starts it, hears how far it is, limits it, and moves what it made.

The child has a staging folder (version_folder.py), limits (limits.py), and ends with this process, whatever ends that.
Whatever ends the child is one sentence: its own, or its signal, or the limit that it reached, with its last step.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from types import FrameType

from app.child_process import ChildProcess
from app.core.machine_memory import available_bytes, resident_bytes
from app.importing.order import CannotImport, ImportOrder
from app.importing.result import ImportResult
from app.importing.version_folder import files_below, publish, staging_beside

#: Memory of an import: so much, and so many times the bytes of its source, which is there as variables of the source,
#: of the export, and as constants; at most this share of what is available. Chosen.
_LEAST_BYTES, _TIMES, _SHARE = 6 << 30, 12, 0.9

#: Called with each stage.
Report = Callable[[str], None]

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

#: Words that say that there was no memory.
_NO_MEMORY = re.compile(r"bad_alloc|MemoryError|[Oo]ut of memory|OOM when|Cannot allocate memory")


def import_in_child(order: ImportOrder, kind: str, report: Report) -> ImportResult:
    """Imports a source of this format (app/repository/disk/importable.py), blocking.

    Args:
        report: called with each stage.

    Raises:
        CannotImport: it cannot be imported; nothing is left.
        OSError: the folder of the destination cannot be written.
    """
    order = replace(order, memory_bytes=order.memory_bytes or memory_for(Path(order.source)))
    with _terminable(), staging_beside(Path(order.destination)) as staging, _child(staging) as child:
        result = _heard(child, order, kind, staging, report)
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
def _child(staging: Path) -> Iterator[ChildProcess]:
    temporary = staging / "temporary"
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    child = ChildProcess(_PROGRAM, environment | _ENVIRONMENT | dict.fromkeys(_FOLDERS, str(temporary)))
    try:
        yield child
    finally:
        child.end()


def _heard(child: ChildProcess, order: ImportOrder, kind: str, staging: Path, report: Report) -> ImportResult:
    """Sends the order, and hears the child until its result. Raises CannotImport."""

    def check_memory() -> None:
        if order.memory_bytes < resident_bytes(child.pid) < inf:
            raise CannotImport(_too_large(child, order))

    message = {"order": asdict(order), "kind": kind, "staging": str(staging)}
    try:
        for what, text in child.lines(message, time.monotonic() + order.limit_s, check_memory):
            if what == "stage":
                report(text)
            elif what == "result":
                return ImportResult(**json.loads(text))
            else:
                raise CannotImport(_too_large(child, order) if _NO_MEMORY.search(text) else text)
    except TimeoutError:
        raise CannotImport(
            f"it took longer than {order.limit_s:g} s (--limit-s); its last step: {child.stage}"
        ) from None
    why = child.why_ended()
    raise CannotImport(_too_large(child, order) if _NO_MEMORY.search(why) else f"the process that imports it {why}")


def _too_large(child: ChildProcess, order: ImportOrder) -> str:
    return (
        f"it needs more than {order.memory_bytes / 2**30:.1f} GiB of memory (--memory-gib); "
        f"its last step: {child.stage}"
    )


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
