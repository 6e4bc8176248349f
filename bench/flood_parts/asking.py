"""Who asks beside a flood, on one connection each, and how much memory the server takes meanwhile."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench.flood_parts.floods import PREDICT
from bench.flood_parts.sending import Server

#: Between two questions. Chosen: less than the shortest delay that counts.
_PAUSE_S = 0.005

#: Between two looks at the memory. Chosen: one takes the kernel some milliseconds.
_LOOK_S = 0.2

_ROW = json.dumps({"instances": [[[0.0] * 8] * 8]})

#: Method, path and body of what is asked.
QUESTIONS: Mapping[str, tuple[str, str, str | None]] = {
    "livez": ("GET", "/livez", None),
    "predict": ("POST", PREDICT, _ROW),
}


class Measured(NamedTuple):
    """The slowest answers in milliseconds, and by how much the server's memory grew, in MiB.

    `bare_ms`: of a bare server, asked at the same time. What it is late, the machine is.
    """

    livez_ms: float
    predict_ms: float
    grown_mib: float
    failures: int
    bare_ms: float


class _Asking:
    """Asks one question again and again, in a thread, until it is stopped."""

    def __init__(self, server: Server, question: tuple[str, str, str | None], stop: threading.Event) -> None:
        self.slowest_s, self.failures = 0.0, 0
        self._server, self._question, self._stop = server, question, stop
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            with suppress(OSError, http.client.HTTPException), closing(_connected(self._server)) as connection:
                while not self._stop.wait(_PAUSE_S):
                    self._ask_once(connection)
                return
            self.failures += 1

    def _ask_once(self, connection: http.client.HTTPConnection) -> None:
        began_s = time.perf_counter()
        try:
            connection.request(*self._question)
            reply = connection.getresponse()
            reply.read()
            self.failures += reply.status != 200
        finally:
            self.slowest_s = max(self.slowest_s, time.perf_counter() - began_s)

    def end(self) -> None:
        self._thread.join(60)


def _connected(server: Server) -> http.client.HTTPConnection:
    context = server.context()
    if context is None:
        return http.client.HTTPConnection("127.0.0.1", server.http, timeout=30)
    connection = http.client.HTTPSConnection("127.0.0.1", server.http, timeout=30, context=context)
    connection.connect()  # whoever stays connected has no handshake to wait for
    return connection


@contextmanager
def asked(server: Server, pid: int, bare: int) -> Iterator[Callable[[], Measured]]:
    """Asks during the block; what it yields tells afterwards what was measured.

    Args:
        pid: the server's first process.
        bare: the port of a bare server.
    """
    stop, most_mib = threading.Event(), 0.0
    began_mib = tree_mib(pid)
    asking = {name: _Asking(server, question, stop) for name, question in QUESTIONS.items()}
    asking["bare"] = _Asking(Server(bare, 0), QUESTIONS["livez"], stop)

    def look() -> None:
        nonlocal most_mib
        while not stop.wait(_LOOK_S):
            most_mib = max(most_mib, tree_mib(pid))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()

    def measured() -> Measured:
        livez, predict = asking["livez"], asking["predict"]
        grown_mib = max(0.0, most_mib - began_mib)
        failures, bare_s = livez.failures + predict.failures, asking["bare"].slowest_s
        return Measured(1e3 * livez.slowest_s, 1e3 * predict.slowest_s, grown_mib, failures, 1e3 * bare_s)

    try:
        yield measured
    finally:
        stop.set()
        looking.join()
        for each in asking.values():
            each.end()


def tree_mib(pid: int) -> float:
    """The memory of a process and all below it, what they share counted once; what has ended meanwhile has none."""
    with suppress(OSError):
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        return _shared_out_mib(pid) + sum(map(tree_mib, children))
    return 0.0


def _shared_out_mib(pid: int) -> float:
    """Of its own pages, not those of files; of one that several have, each has its part (proc_pid_smaps(5))."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")) / 1024
