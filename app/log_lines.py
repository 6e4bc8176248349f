"""The form of log lines, which a server and its processes write to standard error: a record is text, or a JSON object.

Both have one form of time: RFC 3339, UTC, milliseconds. In text, further lines of a record (a traceback, an error of
several lines) are indented, so that a line that begins with a time is a record's first, whatever a client sent. Control
characters, which a client or the name of a folder may bring, are escaped.

All text of Python has this form: Ferry's records, uvicorn's, TensorFlow's and Python's warnings, and uncaught
exceptions. app/runtimes/tensorflow/native_lines.py handles the lines of TensorFlow's libraries, and app/log_output
writes lines without waiting for a reader. Standard library only: processes that start quickly import this.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType

from app.log_output.printable import printable
from app.log_output.standard_streams import take_over

#: The fields that a record may have beside its text, as `extra`, in the order in which they are written.
FIELDS = (
    "model", "version", "request_id", "trace_id",
    "protocol", "client", "caller", "method", "path", "status", "bytes", "seconds", "action", "outcome",
)  # fmt: skip

#: The environment variable by which child processes find level and form of the log. It is no setting.
_HOW = "_FERRY_LOG"

#: Loggers of libraries that may have handlers of their own.
_WITH_HANDLERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "tensorflow", "absl")

_NOISY = ("asyncio", "h5py", "absl")

_CONTINUED = "\n    "


class TextLines(logging.Formatter):
    """The text form: `TIME LEVEL logger: message`, further lines indented."""

    def format(self, record: logging.LogRecord) -> str:
        texts = (record.getMessage(), _exception(self, record))
        lines = [printable(line) for text in texts for line in text.splitlines() if line.strip()]
        return f"{_time(record)} {record.levelname:<7} {_logger(record)}: {_CONTINUED.join(lines)}"


class JsonLines(logging.Formatter):
    """The JSON form: an object of time, level, logger, message, the record's FIELDS, and `exception` as text."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": _logger(record),
            "message": record.getMessage().rstrip(),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) not in {None, ""}}
        if exception := _exception(self, record):
            line["exception"] = exception
        return json.dumps(line, default=str)  # ASCII: text that is no Unicode, such as a path, is escaped


def lines_of(form: str) -> logging.Formatter:
    """The formatter of a form, named as in the setting log_format."""
    return JsonLines() if form == "json" else TextLines()


def configure(level: str, form: str) -> None:
    """Send all records of this process to standard error, without waiting for its reader.

    `level` and `form` are those of the settings log_level and log_format.
    """
    os.environ[_HOW] = f"{level} {form}"
    lines = lines_of(form)
    handler = take_over(lambda number: lines.format(_dropped(number)))
    handler.setFormatter(lines)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)

    # The records of all libraries come here, once.
    for name in _WITH_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.access").disabled = True
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda each: _uncaught(each.exc_type, each.exc_value, each.exc_traceback)


def configured() -> tuple[str, str] | None:
    """Level and form of this process or of its parent; None if neither called `configure`."""
    level, _, form = os.environ.get(_HOW, "").partition(" ")
    return (level, form) if form else None


def configure_child() -> None:
    """Log as the parent process does; nothing changes if the parent has not called `configure`."""
    if how := configured():
        configure(*how)


def _dropped(number: int) -> logging.LogRecord:
    text = f"{number} log lines were dropped: whatever reads standard error did not read for a while"
    return logging.LogRecord("ferry", logging.WARNING, "", 0, text, None, None)


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Log an uncaught exception, which ends a thread or the process."""
    if error is not None and not issubclass(kind, KeyboardInterrupt | SystemExit):
        logging.getLogger("ferry").critical("Nobody caught %s", kind.__name__, exc_info=(kind, error, trace))


def _exception(form: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of a record, and the stack if the record has one."""
    exception = form.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
    return "\n".join(filter(None, [exception, record.stack_info]))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _logger(record: logging.LogRecord) -> str:
    """The name of a record's logger; uvicorn's logger for all but requests is named uvicorn.error."""
    return "uvicorn" if record.name == "uvicorn.error" else record.name
