"""The engine's parent: it has imported what an engine needs, and forks one each time the supervisor asks for one.

Importing TensorFlow takes seconds, a fork 0.04 s. Both processes share the memory of the import: of its 245 MB of
private memory 20 to 30 MB became the engine's own, so this process costs that much more than an engine alone.

A fork has the one thread that forked. So nothing here starts a thread or an event loop; those that the imports start
are OpenBLAS's, which it makes anew in a fork.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from app.frontends.process_arguments import ProcessArguments, end_with
from app.server.memory import spared_from_collection

#: A service manager may send these to all processes. The parent of an engine that drains goes on; it ends when the
#: supervisor does.
_ENDINGS = (signal.SIGTERM, signal.SIGINT)


def fork_engines(main: Callable[[ProcessArguments], int], prepare: Callable[[], object]) -> int:
    """Run `main` in a fork for each line of arguments that comes by standard input; returns the exit code.

    Standard input is a socket. The number of each fork goes there as soon as signals reach it, and its exit code when
    it has ended. The fork inherits the socket, and sees there the end of the supervisor.
    """
    with spared_from_collection():
        prepare()
    _handle(signal.SIG_IGN)
    parent = os.getpid()
    while line := _next_line():
        number = os.fork()
        if not number:
            end_with(parent)  # the supervisor cannot see the end of such a fork, and starts another
            _handle(signal.SIG_DFL)
            _tell(os.getpid())
            return main(ProcessArguments.parse(line))
        _, status = os.waitpid(number, 0)
        _tell(os.waitstatus_to_exitcode(status))
    return 0


def _next_line() -> bytes:
    os.set_blocking(sys.stdin.fileno(), True)  # the event loop of a fork has changed it for both
    return sys.stdin.buffer.readline()


def _handle(how: signal.Handlers) -> None:
    for number in _ENDINGS:
        signal.signal(number, how)


def _tell(number: int) -> None:
    """Without a supervisor nobody needs to know."""
    with suppress(OSError):
        os.write(sys.stdin.fileno(), b"%d\n" % number)
