"""Lines that TensorFlow's libraries write to standard error while they are imported, in the form of the server's log.

They write to the file descriptor, some lines before they read TF_CPP_MIN_LOG_LEVEL, which does not suppress these. So
meanwhile a separate process reads these lines, and writes them in the server's form (app/log_lines.py); lines of
information are left out unless the log's level is debug. The reader is no thread, and reads to the end: the last words
of an import that ends the process are not lost with it. (If the server is process 1 of a container, the kernel ends the
reader soon after.) After the import the descriptor is restored: later lines of TensorFlow, its warnings and the last
words of a crash, come at once, in TensorFlow's form.
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

_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from app.runtimes.tensorflow.native_lines import main; main()"

#: `I0000 00:00:1795649144.124035    4761 port.cc:153] text`, and `2026-11-25 23:19:04.124035: I port.cc:153] text`.
_LINE = re.compile(r"(?:([IWEF])\d{4} [\d:.]+ +\d+ |[\d-]{10} [\d:.]+: ([IWEF]) )([^\]]*)\] (.*)")

#: TensorFlow's remark that its log goes to standard error: here it does not.
_ABOUT_THE_LOG = "before absl::InitializeLog()"

_LEVELS = {"I": logging.DEBUG, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}


@contextmanager
def formatted_stderr(*, threads: bool = True) -> Iterator[None]:
    """A block in which lines to the file descriptor of standard error become lines of the server's log.

    Nothing changes where no log was configured, or no process can be started. Processes that begin in the block keep
    the changed descriptor. `threads`: whether a thread may wait for the end of the reader, else the block does.
    """
    reader = _start() if configured() else None
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


def _start() -> subprocess.Popen[bytes] | None:
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
    """Reads standard input to its end. Signals do not end the reader: it outlives the process whose lines it reads."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    writer = LineWriter(open_output(2))
    for line in rewritten(sys.stdin.buffer, *(configured() or ("info", "text"))):
        writer.put(line)  # does not wait: the process whose lines these are waits for this one
    writer.flush(FLUSH_S)


def rewritten(lines: Iterable[bytes], level: str, form: str) -> Iterator[bytes]:
    """Lines of TensorFlow's libraries in the log's form; others stay, or are the message of an object in JSON."""
    write = lines_of(form)
    least = logging.DEBUG if level == "debug" else logging.WARNING
    for line in lines:
        text = line.decode(errors="backslashreplace").rstrip("\n")
        if found := _LINE.fullmatch(text):
            record = _record(_LEVELS[found[1] or found[2]], f"{found[4]} ({found[3]})")
        elif _ABOUT_THE_LOG in text:
            continue
        elif form == "json" and text and not text.startswith("{"):
            record = _record(logging.WARNING, text)
        else:
            yield line
            continue
        if record.levelno >= least:
            yield write.format(record).encode() + b"\n"


def _record(level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord("tensorflow", level, "", 0, text, None, None)
