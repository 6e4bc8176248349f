"""The form of log lines, as text and as JSON, in processes of their own: it is the process's."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.log_lines import lines_of
from app.log_output.printable import printable

ROOT = Path(__file__).parents[2]

#: RFC 3339, section 5.6, in UTC with milliseconds.
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

#: Records of all kinds, the last by an exception that ends the process.
PROGRAM = """
import logging, sys, threading, warnings
logging.getLogger("uvicorn.error").addHandler(logging.StreamHandler())
from app.log_lines import configure, configure_child
configure("info", sys.argv[1])
configure_child()
logging.getLogger("a").info("one %s", "line", extra={"model": "m", "version": 0, "request_id": ""})
logging.getLogger("a").debug("not shown")
logging.getLogger("uvicorn.error").info("of uvicorn")
logging.getLogger("a").error("forged\\n2026-01-01T00:00:00.000Z INFO    a: line, and no Unicode: \\udc80")
warnings.warn("of Python")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("a").exception("with a traceback")
thread = threading.Thread(target=lambda: [].pop())
thread.start()
thread.join()
raise SystemError("the last words")
"""


def written(form: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, form], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert not done.stdout
    return done.stderr.splitlines()


def test_text_has_one_time_format_and_no_line_can_be_forged() -> None:
    lines = written("text")
    heads = [line for line in lines if not line.startswith("    ")]
    assert all(re.fullmatch(rf"{TIME} (INFO   |WARNING|ERROR  |CRITICAL) [\w.]+: .*", line) for line in heads)
    assert [re.sub(rf"{TIME} ", "", line).split(": ")[0].split() for line in heads] == [
        ["INFO", "a"],
        ["INFO", "uvicorn"],
        ["ERROR", "a"],
        ["WARNING", "py.warnings"],
        ["ERROR", "a"],
        ["CRITICAL", "ferry"],
        ["CRITICAL", "ferry"],
    ]
    assert lines[-1] == "    SystemError: the last words"


def test_json_is_one_object_a_line_with_fields_and_exceptions_as_text() -> None:
    found = [json.loads(line) for line in written("json")]
    assert all(re.fullmatch(TIME, each["time"]) for each in found)
    first, uvicorn, forged, warning, caught, thread, last = found
    assert {**first, "time": ""} == {
        "time": "", "level": "info", "logger": "a", "message": "one line", "model": "m", "version": 0
    }  # fmt: skip
    assert (uvicorn["logger"], uvicorn["message"]) == ("uvicorn", "of uvicorn")
    assert forged["message"].startswith("forged\n2026")
    assert "UserWarning: of Python" in warning["message"]
    assert caught["exception"].endswith("ZeroDivisionError: division by zero")
    assert thread["exception"].endswith("IndexError: pop from empty list")
    assert last["exception"].endswith("SystemError: the last words")
    assert (caught["level"], last["level"]) == ("error", "critical")


def test_what_controls_a_terminal_is_escaped() -> None:
    names = ["m\x1b[31m", "bell\x07", "csi\x9b2J", "del\x7f", "\u202egnp.m", "a\tb ä 日", "carriage"]
    assert [printable(name) for name in names] == [
        r"m\x1b[31m", r"bell\x07", r"csi\x9b2J", r"del\x7f", r"\u202egnp.m", "a\tb ä 日", "carriage"
    ]  # fmt: skip
    for form in ("text", "json"):
        record = logging.LogRecord("a", logging.INFO, "", 0, "%s", (names[0] + names[1],), None)
        line = lines_of(form).format(record)
        assert line.isprintable()
        assert "31m" in line


@pytest.mark.parametrize(("level", "shown"), [("debug", True), ("warning", False)])
def test_a_child_logs_as_its_parent(level: str, shown: bool) -> None:
    child = "import logging; from app.log_lines import configure_child as c; c(); logging.info('of the child')"
    program = (
        f"import subprocess, sys; from app.log_lines import configure; configure('{level}', 'json'); "
        f'subprocess.run([sys.executable, "-c", "{child}"])'
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("of the child" in done.stderr) == shown
    assert all(json.loads(line) for line in done.stderr.splitlines())
