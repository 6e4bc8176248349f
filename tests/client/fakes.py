"""Time that passes when told to, and a server that answers what a test has prepared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import numpy as np
from ferry_client import AsyncClient, Client
from ferry_client.arrays import STRING, Array
from ferry_client.exchange import Exchange, Request, Response, Result

Answer = Callable[[httpx.Request], httpx.Response]


class FakeTime:
    """`sleep` returns at once and moves the clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.now_s += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


class FakeServer:
    """Gives its answers in turn, the last one for ever, and keeps the requests that it saw."""

    def __init__(self, *answers: httpx.Response | Exception | Answer) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.time = FakeTime()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)

    def client(self, **options: Any) -> Client:
        http = httpx.Client(transport=httpx.MockTransport(self))
        return Client("http://ferry.test/", http=http, clock=self.time.clock, sleep=self.time.sleep, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self))
        time = self.time
        return AsyncClient("http://ferry.test/", http=http, clock=time.clock, sleep=time.sleep_async, **options)


def reply_of(document: object) -> Response:
    return Response({}, json.dumps(document).encode())


def run(exchange: Exchange[Result], answer: Callable[[Request], Response]) -> Result:
    """A call from beginning to end against a function."""
    try:
        request = next(exchange)
        while True:
            request = exchange.send(answer(request))
    except StopIteration as end:
        result: Result = end.value
        return result


def strings(texts: Iterable[bytes], shape: tuple[int, ...]) -> Array:
    array = np.empty(shape, STRING)
    array.reshape(-1)[:] = list(texts)
    return array


def assert_same(found: Array, expected: Array) -> None:
    """Type, shape and every bit of every element."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype == STRING:
        assert found.tolist() == expected.tolist()
    else:
        assert found.tobytes() == expected.tobytes()
