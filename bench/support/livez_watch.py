"""Asks `/livez` of a server, and anything of a bare server, while models come and go: how late is an answer?"""

from __future__ import annotations

import gc
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from app.bench.open_loop import percentile
from app.loading.switch_interval import short_switch_interval

P99_GOAL_S, WORST_GOAL_S = 0.020, 0.100

#: Between two questions. Chosen: less than the shortest stall that counts.
_PAUSE_S = 0.005

_WITHIN_S = 180.0


class Ports(NamedTuple):
    server: int
    bare: int


class Latency(NamedTuple):
    """Of the answers of `/livez` while one model was there, and of a bare server meanwhile; seconds."""

    model: str
    answers: int
    p99_s: float
    worst_s: float
    bare_p99_s: float
    bare_worst_s: float

    @classmethod
    def of(cls, model: str, seconds: Sequence[float], bare: Sequence[float]) -> Latency:
        """Raises ValueError without answers."""
        if not (seconds and bare):
            raise ValueError("no answer")
        of_server, of_bare = sorted(seconds), sorted(bare)
        p99_s, bare_p99_s = percentile(of_server, 0.99), percentile(of_bare, 0.99)
        return cls(model, len(seconds), p99_s, of_server[-1], bare_p99_s, of_bare[-1])

    @property
    def passes(self) -> bool:
        return self.p99_s <= P99_GOAL_S and self.worst_s <= WORST_GOAL_S


class Watch:
    """Asks `/livez` of a server on one connection, in a thread, until it is stopped."""

    def __init__(self, port: int) -> None:
        self.seconds: list[float] = []
        self.failure = ""
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            while not (self._stop.wait(_PAUSE_S) or self.failure):
                begin_s = time.perf_counter()
                connection.request("GET", "/livez")
                reply = connection.getresponse()
                text = reply.read()
                self.seconds.append(time.perf_counter() - begin_s)
                if reply.status != 200:
                    self.failure = f"/livez said {reply.status} {text[:200]!r}"

    @contextmanager
    def during(self) -> Iterator[None]:
        """Raises RuntimeError if an answer was not 200.

        Nothing is collected in this process meanwhile, and its threads take turns often: else their time would count as
        the server's. It shares its core with the load all the same.
        """
        with _uncollected(), short_switch_interval():
            self._thread.start()
            try:
                yield
            finally:
                self._stop.set()
                self._thread.join(60)
        if self.failure:
            raise RuntimeError(self.failure)


@contextmanager
def _uncollected() -> Iterator[None]:
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def wait_for(port: int, model: str, state: str) -> None:
    """Raises TimeoutError unless a version of the model is in this state in time."""
    ends_s = time.monotonic() + _WITHIN_S
    while time.monotonic() < ends_s:
        with suppress(HTTPError), urlopen(f"http://127.0.0.1:{port}/v1/models/{quote(model)}", timeout=60) as reply:
            states = [each["state"] for each in json.load(reply)["model_version_status"]]
            if state in states:
                return
        if state == "END" and model not in _listed(port):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{model} is not {state} after {_WITHIN_S:g} s")


def _listed(port: int) -> set[str]:
    with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as reply:
        return {each["name"] for each in json.load(reply)["models"]}
