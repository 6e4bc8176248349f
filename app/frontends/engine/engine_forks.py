"""The engine's parent: it has made an engine's imports, and forks an engine each time the supervisor asks.

Importing TensorFlow takes seconds, a fork 0.04 s. Both processes share the memory of the imports, 245 MB. An engine
made 20 to 30 MB of it its own; by that much this process costs more than an engine alone.

A fork has only the thread that forked. So nothing here starts a thread or an event loop. The imports start threads of
OpenBLAS, which starts them anew in a fork.
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
            end_with(parent)  # a fork must not outlive its parent, whose end is all that the supervisor sees
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
    """Tells the supervisor the process id of an engine that began. Does nothing if the supervisor has gone."""
    with suppress(OSError):
        os.write(sys.stdin.fileno(), b"%d\n" % number)
