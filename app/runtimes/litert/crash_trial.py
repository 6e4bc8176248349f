"""The trial of a file in a child process, before it is loaded: some files end the process that executes them.

The child makes an interpreter and calls each signature with zeros, at a few numbers of rows where these are free. A
fault in LiteRT's own code then ends the child, and the load fails with one line. It imports no TensorFlow, and takes
about 0.4 s for a small file.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.core.machine_memory import available_bytes, data_bytes
from app.runtimes.litert.error_mapping import is_unknown_operation, one_line, why_not_loaded
from app.runtimes.litert.interpreters import InterpreterCalls, make_interpreter
from app.runtimes.litert.litert_model import zeros_of
from app.runtimes.litert.tflite_file import TFLiteFileError, read_tflite
from app.runtimes.litert.tflite_signatures import TFLiteFunction, functions_of

#: The most seconds of a trial. Chosen: public files take less than one.
_LIMIT_S = 60

#: Numbers of rows that are tried where rows are free. Chosen: one, and two that no file has by chance.
_ROWS = (1, 2, 3)

#: The program of the child: its module path is that of its parent.
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from app.runtimes.litert.crash_trial import main; main(sys.argv[1])"

# Beginnings of the child's lines: what it does next, a signature that answered, and why the file cannot be loaded.
_STAGE, _RAN, _FAULT = "stage", "ran", "fault"


class Tried(NamedTuple):
    """The result: the signatures that answered a call with zeros, and why the file cannot be loaded, or empty."""

    ran: frozenset[str]
    fault: str


def try_in_child(content: bytes, threads: int) -> Tried:
    """Tries the file of these bytes, blocking. Raises OSError: no child can be started."""
    with subprocess.Popen(  # noqa: S603 - this interpreter, and nothing that users give
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(threads), *map(os.path.abspath, sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        try:
            said, _ = child.communicate(content, _LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
    lines = [json.loads(line) for line in said.splitlines()]
    ran = frozenset(text for kind, text in lines if kind == _RAN)
    if faults := [text for kind, text in lines if kind == _FAULT]:
        return Tried(ran, faults[0])
    return Tried(ran, _why_ended(child.returncode, [text for kind, text in lines if kind == _STAGE]))


def _why_ended(status: int, stages: list[str]) -> str:
    """The sentence for a child that ended before it was done; empty if it was done."""
    if status == 0:
        return ""
    stage = stages[-1] if stages else "it started"
    if status == -signal.SIGKILL:
        return f"LiteRT was given up while {stage}: it took longer than {_LIMIT_S} s, or too much memory"
    reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return f"LiteRT crashes with this file ({reason}) while {stage}, so it is not loaded"


# --- in the child ---


def main(threads: str) -> None:
    """The program of the child: the file comes by its standard input."""
    signal.alarm(_LIMIT_S + 1)  # also if the parent is gone
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, this process is to end
    content = sys.stdin.buffer.read()
    _limit_memory()
    try:
        _try(content, int(threads))
    except TFLiteFileError as error:
        _say(_FAULT, str(error))
    except Exception as error:  # whatever LiteRT raises
        _say(_FAULT, why_not_loaded(error))
    os._exit(0)


def _limit_memory() -> None:
    available = available_bytes()
    if available < sys.maxsize:
        limit = int(data_bytes(os.getpid()) + available)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)  # an import has a limit already
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _try(content: bytes, threads: int) -> None:
    """Calls each signature. Raises LiteRT's error if none of its calls can succeed."""
    file = read_tflite(content)
    functions = functions_of(file, content)
    _say(_STAGE, "it read the file")
    calls = InterpreterCalls(make_interpreter(content, threads), forgets=functions.forgets)
    for name, function in functions.by_name.items():
        for rows in _ROWS if function.has_free_rows else _ROWS[:1]:
            _say(_STAGE, f"it called signature {name!r} with zeros")
            _call(calls, function, rows)


def _call(calls: InterpreterCalls, function: TFLiteFunction, rows: int) -> None:
    try:
        calls.call(function, zeros_of(function.signature, rows))
    except Exception as error:
        # Values and sizes that are made up may be wrong; an operation that is not there always is.
        if is_unknown_operation(error):
            raise
        _say(_STAGE, f"it continued after an error: {one_line(error)}")
    else:
        _say(_RAN, function.signature.name)


def _say(kind: str, text: str) -> None:
    os.write(1, json.dumps((kind, " ".join(text.split()))).encode() + b"\n")
