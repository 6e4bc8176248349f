"""Connections of HTTP/1.1 that send as fast as they are answered, and compare every answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import cast

from tests.row_corpus.asked import Asked

#: Chosen: so many problems of a model are kept.
_SHOWN = 3


@dataclass(slots=True)
class Tally:
    """What was asked, by model. wrong: answered with 200, and not as by the model; refused: another status, or lost."""

    asked: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    problems: dict[str, list[str]] = field(default_factory=dict)

    def count(self, each: Asked, status: int, content: bytes) -> None:
        self.asked[each.model] += 1
        if problem := each.problem(status, content):
            (self.wrong if status == 200 else self.refused)[each.model] += 1
            self._keep(each.model, problem)

    def lost(self, each: Asked, error: str) -> None:
        self.asked[each.model] += 1
        self.refused[each.model] += 1
        self._keep(each.model, error)

    def add(self, other: Tally) -> None:
        self.asked += other.asked
        self.wrong += other.wrong
        self.refused += other.refused
        for model, problems in other.problems.items():
            for each in problems:
                self._keep(model, each)

    def _keep(self, model: str, problem: str) -> None:
        kept = self.problems.setdefault(model, [])
        if len(kept) < _SHOWN:
            kept.append(problem)


def message(each: Asked) -> bytes:
    head = f"POST {each.path} HTTP/1.1\r\nHost: ferry\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(each.body)}\r\n\r\n".encode() + each.body


class Caller(asyncio.Protocol):
    """One connection with one request at a time, from an iterator; `done` has a result when that is empty."""

    def __init__(self, requests: Iterator[tuple[bytes, Asked]], tally: Tally) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._requests, self._tally = requests, tally
        self._current: Asked | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, content = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, rest = head.lower().partition(b"content-length:")
        if len(content) < int(rest.partition(b"\r\n")[0]):
            return
        self._buffer = b""
        assert self._current is not None
        self._tally.count(self._current, int(head[9:12]), content)
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            if self._current is not None:
                self._tally.lost(self._current, f"the connection ended: {error}")
            self.done.set_result(None)

    def _next(self) -> None:
        following = next(self._requests, None)
        if following is None:
            self.done.set_result(None)
            self._transport.close()
            return
        content, self._current = following
        self._transport.write(content)


async def ask(ports: Sequence[int], callers: Sequence[Iterator[tuple[bytes, Asked]]]) -> Tally:
    """Each caller asks on a connection of its own, all at the same time; the servers have equally many of them."""
    tally = Tally()
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda own=own: Caller(own, tally), "127.0.0.1", port))[1]
        for own, port in zip(callers, cycle(ports))
    ]
    await asyncio.gather(*[each.done for each in connections])
    return tally
