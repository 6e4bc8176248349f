"""The interval at which Python switches threads, shorter while a background thread runs Python for long.

So the event loop gets the GIL sooner.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

#: Seconds after which a thread that runs Python releases the GIL when another one wants it; Python's default is 5 ms,
#: and the event loop pays that at each turn. Chosen: a load of mostly Python code becomes a few percent slower. Shorter
#: ones halve the single wait for the GIL and gain requests nothing, as each switch of the GIL is one of cores, too:
#: p99 beside loads, 15 alternate runs on two crowded cores, is 35 ms with 0.5 ms, 41 with 0.2 and 50 with 0.1.
_INTERVAL_S = 0.0005

_lock = Lock()
_running = 0
_usual_s = 0.0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """A block during which Python switches threads more often; blocks of several threads may overlap."""
    global _running, _usual_s  # noqa: PLW0603 - the interval is the process's, too
    with _lock:
        if not _running:
            _usual_s = sys.getswitchinterval()
            if _usual_s > _INTERVAL_S:
                sys.setswitchinterval(_INTERVAL_S)
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                sys.setswitchinterval(_usual_s + 5e-7)  # Python cuts it to whole microseconds
