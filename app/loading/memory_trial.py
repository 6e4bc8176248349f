"""The measurement of a model's calls in a child process: a call that takes too much memory ends the child only.

The child loads the model by itself and calls each signature with zeros, or with values that it accepts, at the sizes of
the trial, ascending. It may take no more memory than the trial says, has the least priority, and ends when its parent
does.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from app.core.errors import OutOfMemory, ServingError
from app.core.inference import ModelSignature
from app.core.machine_memory import available_bytes, data_bytes
from app.loading.call_memory import MemoryBudget, measured_call
from app.loading.values.accepted_rows import accepted_inputs
from app.model_files import runtime_of
from app.runtime import LoadedModel, RuntimeOptions, create_runtime

#: Seconds between two polls whether the trial is still wanted. Chosen.
_POLL_S = 0.2

#: The bytes of the runtime in a child, and copies of a model's files while it is read. Chosen, generously.
_RUNTIME_BYTES, _COPIES = 700 * 2**20, 3

#: Seconds to wait for the end of a child. Chosen.
_END_S = 5.0

#: Bytes for threads that TensorFlow starts at any time. Chosen.
_SLACK_BYTES = 64 * 2**20

#: The program of a child: its module path is that of its parent.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from app.loading.memory_trial import main; main()"


class TrialFailed(Exception):
    """Not all calls were measured; the text says why."""


@dataclass(frozen=True, slots=True)
class MemoryTrial:
    """The order for a child: the model, the preferred runtime, and the calls.

    sizes: the batch sizes to call it with, ascending; the first one was called before.
    most_bytes: the bytes that a call may take.
    """

    path: str
    runtime: str
    sizes: Sequence[int]
    most_bytes: float
    allowed_operations: Sequence[str] = ()
    operation_libraries: Sequence[str] = ()


class _Line(NamedTuple):
    """A child's message about a call: it begins, or it took this many bytes; infinity if it takes too many."""

    signature: str
    cells: int
    bytes: float | None = None


def measure_in_child(trial: MemoryTrial, memory: MemoryBudget, is_wanted: Callable[[], bool]) -> None:
    """Notes in `memory` the bytes that the calls take, blocking, as long as the trial is wanted.

    A call at which the child ends takes too much. Raises TrialFailed: figures of calls before it are noted.
    """
    _check_room(trial)
    begun: _Line | None = None
    heard: set[str] = set()
    try:
        with _child(trial) as connection:
            # Figures of the child replace those of this process, whose other requests took memory, too.
            for line in _lines(connection, is_wanted):
                if line.signature not in heard:
                    heard.add(line.signature)
                    memory.forget(line.signature)
                begun = line if line.bytes is None else None
                if line.bytes is not None:
                    memory.note(line.signature, line.cells, line.bytes)
    except (OSError, ValueError) as error:
        raise TrialFailed(f"it failed: {error}") from None
    if not is_wanted():
        raise TrialFailed("there was no time for all of it")
    if not heard:
        raise TrialFailed("the model cannot be loaded or called there")
    if begun is not None:  # the child ended in this call
        memory.note(begun.signature, begun.cells, inf)


def _check_room(trial: MemoryTrial) -> None:
    """Raises TrialFailed if there is no room for the child itself, which has a copy of the model."""
    files = sum(file.stat().st_size for file in Path(trial.path).rglob("*") if file.is_file())
    if _RUNTIME_BYTES + _COPIES * files + trial.most_bytes > available_bytes():
        raise TrialFailed("there is no room for another copy of the model")


@contextmanager
def _child(trial: MemoryTrial) -> Iterator[socket.socket]:
    """A connection to a child that makes the trial; it is ended, and waited for, in any case."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and nothing that users give
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(os.path.abspath, sys.path)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            ours.sendall(json.dumps(asdict(trial)).encode() + b"\n")
            yield ours
        finally:
            process.kill()
            with suppress(subprocess.TimeoutExpired):  # it reads from storage that does not answer
                process.wait(_END_S)


def _lines(connection: socket.socket, is_wanted: Callable[[], bool]) -> Iterator[_Line]:
    """The child's messages, until it ends or the trial is not wanted any more."""
    connection.settimeout(_POLL_S)
    said = b""
    while is_wanted():
        try:
            more = connection.recv(1 << 16)
        except TimeoutError:
            continue
        except ConnectionError:
            return
        if not more:
            return
        *lines, said = (said + more).split(b"\n")
        yield from (_Line(*json.loads(line)) for line in lines)


# --- in the child ---


def main() -> None:
    """The program of the child: the parent is at the other end of its standard input."""
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, this process is to end
    parent = socket.socket(fileno=os.dup(0))
    lines = parent.makefile("rb")
    trial = MemoryTrial(**json.loads(lines.readline()))
    Thread(target=_end_with, args=(lines.readline,), daemon=True).start()
    for line in _calls(_loaded(trial), trial):
        parent.sendall(json.dumps(line).encode() + b"\n")
    os._exit(0)  # TensorFlow takes its time to end


def _end_with(read: Callable[[], bytes]) -> None:
    read()  # until the parent is gone
    os._exit(1)


def _loaded(trial: MemoryTrial) -> LoadedModel:
    options = RuntimeOptions(
        1,  # others need the cores
        1,
        allowed_operations=tuple(trial.allowed_operations),
        operation_libraries=tuple(trial.operation_libraries),
    )
    path = Path(trial.path)
    return create_runtime(runtime_of(path, trial.runtime), options).load(path)


def _limit_memory(more: float) -> None:
    """Limits this process to `more` bytes beyond its present memory, and _SLACK_BYTES. A call beyond that fails."""
    limit = int(data_bytes(os.getpid()) + more + _SLACK_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _calls(model: LoadedModel, trial: MemoryTrial) -> Iterator[_Line]:
    """Makes the calls of each signature that may be batched, up to the size that takes too much."""
    signatures = [each for each in model.signatures.values() if each.shares_calls and not each.writes]
    for signature in signatures:  # the first call also makes objects that stay in memory; the parent made it, too
        with suppress(ServingError):
            model.run(signature.name, accepted_inputs(model, signature, trial.sizes[0]), ())
    _limit_memory(trial.most_bytes)
    for signature in signatures:
        yield from _calls_of(model, signature, trial.sizes)


def _calls_of(model: LoadedModel, signature: ModelSignature, sizes: Sequence[int]) -> Iterator[_Line]:
    for rows in sizes:
        inputs = accepted_inputs(model, signature, rows)
        cells = sum(array.size for array in inputs.values()) or 1
        yield _Line(signature.name, cells)
        try:
            _, taken = measured_call(inputs, partial(model.run, signature.name, inputs, ()))
        except (OutOfMemory, MemoryError):
            yield _Line(signature.name, cells, inf)
            return
        except ServingError:
            return  # it rejects zeros, as at warm-up
        yield _Line(signature.name, cells, taken)
