"""The process that touches the storage for a server, which can give it up. Standard library only; no TensorFlow.

It gets functions by standard input and answers by standard output. A message is its length in 4 bytes and then a
pickle: both ends are Ferry. When its standard input ends, it ends at once, even while a read hangs.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO

from app.log_lines import configure_child

LENGTH = struct.Struct("!I")

#: The first item of an answer.
AT, RESULT, ERROR = 0, 1, 2

_tell: Callable[[str], None] | None = None


def at(path: object) -> None:
    """Send a sign of life with the path; functions that touch the storage call it before each step."""
    if _tell is not None:
        _tell(str(path))


def message(content: Any) -> bytes:
    body = pickle.dumps(content)
    return LENGTH.pack(len(body)) + body


def main() -> None:
    """Serve until standard input ends."""
    global _tell  # noqa: PLW0603 - there is one in each process, and every step of a read tells it
    configure_child()
    tasks: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
    answers = sys.stdout.buffer
    _tell = lambda path: _send(answers, (AT, path))  # noqa: E731 - a name of the module
    threading.Thread(target=_work, args=(tasks, answers), daemon=True).start()
    requests = sys.stdin.buffer
    with suppress(OSError):  # the server has gone
        _send(answers, (AT, ""))  # the sign that it has started
        while head := requests.read(LENGTH.size):
            tasks.put(pickle.loads(requests.read(*LENGTH.unpack(head))))  # noqa: S301 - from Ferry
    os._exit(0)


def _work(tasks: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]], answers: BinaryIO) -> None:
    while True:
        function, arguments = tasks.get()
        try:
            answer = (RESULT, function(*arguments))
        except Exception as error:
            answer = (ERROR, error)
        _send(answers, answer)


def _send(answers: BinaryIO, content: Any) -> None:
    answers.write(message(content))
    answers.flush()
