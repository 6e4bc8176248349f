"""What libraries write to the file descriptor of standard error, in the form of the log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.runtimes.tensorflow.native_lines import rewritten

ROOT = Path(__file__).parents[3]

LINES = [
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n",
    b"I0000 00:00:1795649144.124035    4761 port.cc:153] oneDNN custom operations are on. 100 %\n",
    b"E1125 23:28:33.428123   12 cuda_dnn.cc:8579] Unable to register cuDNN factory\n",
    b"2026-11-25 23:19:04.124035: W tensorflow/stream_executor/dso.cc:64] Could not load libcudart\n",
    b"of another \xff kind\n",
    b'{"time": "of a child"}\n',
]


def json_lines(level: str) -> list[tuple[str, str, str]]:
    found = [json.loads(line) for line in rewritten(LINES, level, "json")]
    return [(each["level"], each["logger"], each["message"]) for each in found if "level" in each]


@pytest.mark.parametrize("level", ["debug", "info"])
def test_lines_of_tensorflow_take_our_form_and_information_needs_debug(level: str) -> None:
    shown = [("debug", "tensorflow", "oneDNN custom operations are on. 100 % (port.cc:153)")] * (level == "debug")
    assert json_lines(level) == [
        *shown,
        ("error", "tensorflow", "Unable to register cuDNN factory (cuda_dnn.cc:8579)"),
        ("warning", "tensorflow", "Could not load libcudart (tensorflow/stream_executor/dso.cc:64)"),
        ("warning", "tensorflow", "of another \\xff kind"),
    ]


def test_text_keeps_what_is_not_of_tensorflow() -> None:
    lines = list(rewritten(LINES, "info", "text"))
    assert lines[0].endswith(b"Z ERROR   tensorflow: Unable to register cuDNN factory (cuda_dnn.cc:8579)\n")
    assert lines[2:] == LINES[4:]


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), 9)", "pass"])
def test_the_last_words_of_a_crash_are_not_lost(end: str) -> None:
    program = (
        "import os; from app.log_lines import configure; configure('info', 'json')\n"
        "from app.runtimes.tensorflow.native_lines import formatted_stderr\n"
        "with formatted_stderr():\n"
        "    os.write(2, b'F1125 23:28:33.428123   12 cpu.cc:1] no AVX\\n')\n"
        f"    {end}\n"
        "os.write(2, b'it is what it was\\n')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = sorted(done.stderr.splitlines(), key=lambda line: line.startswith("{"))
    assert json.loads(lines[-1])["message"] == "no AVX (cpu.cc:1)"
    assert json.loads(lines[-1])["level"] == "critical"
    assert lines[:-1] == ["it is what it was"] * (end == "pass")
