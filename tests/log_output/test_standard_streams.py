"""A process whose standard error is a pipe that nobody reads: a process of its own, with real pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import HANG_S

ROOT = Path(__file__).parents[2]

#: Logs much more than a pipe and the room for lines hold, prints, lets libraries of C write, and fails at the end.
FLOOD = """
import logging, os, sys
from app.log_lines import configure
from app.log_output.standard_streams import dropped_lines
configure("info", "text")
for number in range(20_000):
    logging.info("line %d %s", number, "x" * 60)
print("of a library", file=sys.stderr)
print("of a library")
for _ in range(3):
    try:
        os.write(2, b"of C")
    except BlockingIOError:
        pass
assert dropped_lines() > 1000
raise SystemError("the last words")
"""


def run(program: str, stderr: int, stdout: int) -> int:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, stdout=stdout, stderr=stderr, check=False, timeout=HANG_S).returncode


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def test_a_full_pipe_holds_up_neither_lines_nor_prints_nor_the_end(pipe: tuple[int, int]) -> None:
    read, write = pipe
    assert run(FLOOD, write, stdout=write) == 1
    assert os.get_blocking(write)  # what others have of the pipe is as it was
    os.close(write)
    with open(read, "rb") as file:
        lines = file.read().splitlines()
    numbers = [int(line.split()[4]) for line in lines if b" line " in line]
    assert numbers == list(range(len(numbers)))


def test_dropped_lines_are_told_when_the_pipe_is_read_again_and_the_last_line_is_out(pipe: tuple[int, int]) -> None:
    read, write = pipe
    program = FLOOD.replace("raise", 'os.write(1, b"full"); logging.warning("last but one")\nraise')
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=write) as process:
        os.close(write)
        assert process.stdout is not None
        assert process.stdout.read(len("of a library\nfull")).endswith(b"full")
        with open(read, "rb") as file:
            text = file.read().decode()
    assert re.search(r"Z WARNING ferry: \d+ log lines were dropped: ", text)
    assert text.endswith("SystemError: the last words\n")


def test_the_end_of_a_thread_that_waits_for_a_socket_takes_no_longer_than_the_flush() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        program = FLOOD.replace('os.write(2, b"of C")', "pass")  # libraries of C wait for a socket
        assert run(program, theirs.fileno(), stdout=subprocess.DEVNULL) == 1
        assert theirs.getblocking()
        assert ours.recv(100).startswith(b"20")


def test_a_terminal_shows_lines_at_once() -> None:
    ours, theirs = pty.openpty()
    program = (
        "import logging, sys; from app.log_lines import configure; configure('info', 'json')\n"
        "logging.info('at once'); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        assert json.loads(os.read(ours, 1000))["message"] == "at once"
        assert process.poll() is None
    os.close(ours)
