"""Compares a server's answers with known ones before, during and after load: a status of 200 proves little."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Sequence
from types import TracebackType

from bench.support.forms import Array, Body, Form, agrees


class WrongAnswer(Exception):
    """The server answered something else than the direct call; the text says what.

    `not_yet` is true of the statuses that a server gives while its model loads.
    """

    def __init__(self, text: str, status: int = 200) -> None:
        super().__init__(text)
        self.not_yet = status in {404, 429, 500, 502, 503}


class Sample:
    """One request whose answer is known."""

    def __init__(self, form: Form, name: str, row: Array, expected: Array) -> None:
        self.body: Body = form.write(name, row)
        self._read = form.read
        self._expected = expected

    def check(self, status: int, headers: dict[str, str], content: bytes) -> None:
        """Raises WrongAnswer. Names of headers are in lower case."""
        if not 200 <= status < 300:
            raise WrongAnswer(f"status {status}: {content[:200]!r}", status)
        try:
            answer = self._read(headers, content)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise WrongAnswer(f"no answer in {content[:200]!r}: {error!r}") from error
        if not agrees(answer, self._expected):
            raise WrongAnswer(f"{answer.reshape(-1)[:4]} instead of {self._expected.reshape(-1)[:4]}")


def ask(connection: http.client.HTTPConnection, path: str, sample: Sample) -> None:
    """Raises WrongAnswer, OSError, http.client.HTTPException."""
    connection.request("POST", path, sample.body.content, sample.body.headers)
    reply = connection.getresponse()
    content = reply.read()
    sample.check(reply.status, {name.lower(): value for name, value in reply.getheaders()}, content)


class Probe:
    """Asks ten times a second, on a connection of its own, as long as its block lasts: are answers right under load?"""

    def __init__(self, port: int, path: str, samples: Sequence[Sample], pause_s: float = 0.1) -> None:
        self.asked = 0
        self.failure: Exception | None = None
        self._port, self._path, self._samples, self._pause_s = port, path, samples, pause_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask_on, daemon=True)

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._thread.join(60)

    def _ask_on(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            while not self._end.wait(self._pause_s):
                ask(connection, self._path, self._samples[self.asked % len(self._samples)])
                self.asked += 1
        except (WrongAnswer, OSError, http.client.HTTPException) as error:
            self.failure = error
        finally:
            connection.close()
