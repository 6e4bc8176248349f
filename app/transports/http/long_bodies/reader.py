"""A process that reads long bodies for the server, so that a parser keeps this process's GIL and not the server's.

It says that it is ready, calls functions on one body after another until the server is done with the body, forgets the
body, and is ready again. It ends with its connection (standard input), and if a body left it large. It imports no
TensorFlow.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.codecs import errors as codec_errors
from app.core import errors as core_errors
from app.core.errors import BodyOverMemory, ServingError
from app.core.machine_memory import resident_bytes
from app.log_lines import configure_child
from app.transports.http.long_bodies.channel import Channel

#: The first item of an answer. An error is its class, its text and the seconds until a retry; a bug is its text.
READY, RESULT, ERROR, BUG = range(4)

#: (keep the result instead of sending it, function, its arguments); None if the server is done with the body.
Call = tuple[bool, Callable[..., Any], tuple[Any, ...]] | None

#: A process that is larger after a body was forgotten ends. Chosen: a new one has some 50 MB.
_LARGEST_BYTES = 256 * 1024 * 1024

#: Chosen: parsing takes less of a core than models do.
_NICENESS = 5

#: The body becomes more than its size lets expect.
TOO_MUCH = (
    "The body takes more memory to read than is kept for one of its size within the limit of this server's container: "
    "it has many short values; send less at a time, or give the container more memory"
)

_ERROR_MODULES = {core_errors.__name__, codec_errors.__name__}


def main() -> None:
    """Serves until standard input ends."""
    configure_child()
    gc.disable()  # a parser that makes millions of lists would be stopped by the collector again and again
    os.nice(_NICENESS)
    with suppress(OSError):  # if memory runs out, this process ends and not the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    channel = Channel(socket.socket(fileno=0))
    with suppress(OSError, EOFError):  # the server has ended
        while True:
            channel.send((READY, None))
            _read_body(channel)
            gc.collect()
            if resident_bytes() > _LARGEST_BYTES:
                return


def _read_body(channel: Channel) -> None:
    kept: Any = None
    answer: tuple[int, Any]
    call: Call
    while (call := channel.receive()) is not None:
        keep, function, arguments = call
        try:
            if keep:
                kept, answer = function(*arguments), (RESULT, None)
            else:
                answer = (RESULT, function(kept, *arguments))
        except ServingError as error:
            answer = (ERROR, _described(error))
        except MemoryError:  # a bound of this process, where a container has one (reading_processes.py)
            kept, answer = None, (ERROR, (BodyOverMemory, TOO_MUCH, None))
        except Exception as error:
            answer = (BUG, repr(error))
        channel.send(answer)


def _described(error: ServingError) -> tuple[type[ServingError], str, float | None]:
    """The nearest class of an error that is made of a text alone, the text, and `retry_after_s`."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ in _ERROR_MODULES)
    return kind, str(error), error.retry_after_s
