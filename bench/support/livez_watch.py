"""A watch asks `/livez` of a server again and again beside a load: how late is an answer?"""

from __future__ import annotations

import gc
import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from app.loading.switch_interval import short_switch_interval

#: Between two questions. Chosen: less than the shortest stall that counts.
_PAUSE_S = 0.005


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
