"""Lines that TensorFlow's libraries write to standard error while they are imported, in the form of the server's log.

The libraries write to the file descriptor itself. They write some lines before they read TF_CPP_MIN_LOG_LEVEL, so this
variable does not suppress them. During the import a separate process, the reader, gets all lines and writes them in the
server's form (app/log_lines.py). It leaves out lines of information unless the level of the log is debug.

The reader is a process, not a thread: if the import ends the server's process, the reader still writes the last lines.
(If the server is process 1 of a container, the kernel ends the reader soon after.) After the import the descriptor is
restored: later warnings of TensorFlow and the lines of a crash come at once, in TensorFlow's form.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from app.log_lines import configured, lines_of
from app.log_output.line_writer import LineWriter
from app.log_output.outputs import open_output
from app.log_output.standard_streams import FLUSH_S

#: The program of the reader; its arguments are the server's import path.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from app.runtimes.tensorflow.native_lines import main; main()"

#: `I0000 00:00:1795649144.124035    4761 port.cc:153] text`, and `2026-11-25 23:19:04.124035: I port.cc:153] text`.
_TENSORFLOW_LINE = re.compile(r"(?:([IWEF])\d{4} [\d:.]+ +\d+ |[\d-]{10} [\d:.]+: ([IWEF]) )([^\]]*)\] (.*)")

#: Part of TensorFlow's remark that its log goes to standard error. The remark is left out: the reader gets the log.
_STDERR_REMARK = "before absl::InitializeLog()"

_LEVELS = {"I": logging.DEBUG, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}


@contextmanager
def formatted_stderr(*, threads: bool = True) -> Iterator[None]:
    """A block in which lines to the file descriptor of standard error become lines of the server's log.

    The lines stay as they are if no log was configured, or if the reader cannot be started. A process that is started
    in the block keeps the changed descriptor.

    Args:
        threads: whether a thread may wait for the end of the reader; otherwise the end of the block waits.
    """
    reader = _start_reader() if configured() else None
    if reader is None or reader.stdin is None:
        yield
        return
    saved = os.dup(2)
    os.dup2(reader.stdin.fileno(), 2)
    reader.stdin.close()
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        if threads:
            threading.Thread(target=reader.wait, name="native lines", daemon=True).start()
        else:
            reader.wait()


def _start_reader() -> subprocess.Popen[bytes] | None:
    """Start the reader; None if standard error is closed or no process can be started."""
    try:
        os.fstat(2)
        return subprocess.Popen(  # noqa: S603 - fixed arguments
            [sys.executable, "-S", "-E", "-c", _PROGRAM, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
    except OSError:
        return None


def main() -> None:
    """The reader: it writes the lines of standard input, rewritten, to standard error until the input ends.

    It ignores signals, so it still runs when the server's process ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    writer = LineWriter(open_output(2))
    for line in rewritten(sys.stdin.buffer, *(configured() or ("info", "text"))):
        writer.put(line)  # does not block: the server waits for the reader
    writer.flush(FLUSH_S)


def rewritten(lines: Iterable[bytes], level: str, form: str) -> Iterator[bytes]:
    """The lines in the form of the log.

    A line that is not in TensorFlow's form stays as it is; if the form is JSON and the line is not, it becomes the
    message of a warning.
    """
    write = lines_of(form)
    least_level = logging.DEBUG if level == "debug" else logging.WARNING
    for line in lines:
        text = line.decode(errors="backslashreplace").rstrip("\n")
        if found := _TENSORFLOW_LINE.fullmatch(text):
            record = _record(_LEVELS[found[1] or found[2]], f"{found[4]} ({found[3]})")
        elif _STDERR_REMARK in text:
            continue
        elif form == "json" and text and not text.startswith("{"):
            record = _record(logging.WARNING, text)
        else:
            yield line
            continue
        if record.levelno >= least_level:
            yield write.format(record).encode() + b"\n"


def _record(level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord("tensorflow", level, "", 0, text, None, None)
