"""Pages that are computed for operators: one for all equal questions that wait, in pieces, with pauses between pages.

Rules (test_rendered_pages.py)
- An answer is never older than its question. An ask that comes while its page is made, or before that is due, waits and
  gets the next page. So an ask after an event shows the event. A lone ask is answered at once.
- Equal asks (of one key) that wait get one page. One page is made at a time, in the order of the first asks.
- A page that took c seconds of the loop is followed by a pause of 10 c, at most 0.5 s, whatever is asked next. So cheap
  pages take a tenth of the loop, and a page of 200 ms, made in pieces, less than a third.
- The loop is given back after each millisecond of a page, and after each few answers that are passed on.
- Nothing is kept: a key lives while an ask waits for its page. A cancelled ask is forgotten, and a page without an ask
  is not made, or not to its end.
- An error goes to all asks that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable
from functools import partial
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

#: Makes a page: a `yield` is where the loop may be given back. A change between two pieces may show in the later piece
#: alone.
Pieces = Generator[None, None, T]

#: Seconds of the loop that a page takes at a time. Chosen: half of what a peer may take in a turn.
PIECE_S = 0.001

#: A pause after a page: so many times what it took, and at most so many seconds. Chosen: Prometheus asks each 15 s.
_PAUSE, MOST_PAUSE_S = 10, 0.5

#: Answers that are passed on in a turn of the loop. Measured: FastAPI takes 0.2 ms to send one.
TOLD_IN_A_TURN = 8


def whole(pieces: Pieces[T]) -> T:
    """The page, with all pieces made at once, for callers that need not give the loop back."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            made: T = end.value
            return made


class Page(NamedTuple):
    """A page as it is sent. `encoding`: Content-Encoding; None if it is sent as it is."""

    body: bytes
    content_type: str = "application/json"
    encoding: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers beside Content-Type and Content-Length."""
        return {} if self.encoding is None else {"content-encoding": self.encoding}


class _Asked:
    """The asks that wait for one page, in order, and the task that makes it."""

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Future[Any], None] = {}
        self.task: asyncio.Task[None]


class RenderedPages:
    """The pages of one process. Created anywhere, used on its event loop.

    Attributes:
        counted: returns when all that other processes counted until then is known here; None if there are none.
    """

    def __init__(self) -> None:
        self.counted: Callable[[], Awaitable[None]] | None = None
        self._asked: dict[Hashable, _Asked] = {}  # pages that more may wait for
        self._making: dict[Hashable, asyncio.Task[None]] = {}  # pages that are too old for a new ask
        self._one = asyncio.Lock()
        self._due_s = 0.0  # of the loop's clock

    async def ask(self, key: Hashable, render: Callable[[], Pieces[T]], *, counts: bool = False) -> T:
        """The page that `render` makes, shared with all asks that wait for this key.

        Args:
            key: names all that the page depends on but the server's state.
            counts: the page shows what other processes count.

        Raises what `counted` and `render` raise.
        """
        counted = self.counted if counts else None
        page: T = await self._wait(key, partial(self._render, key, render, counted))
        return page

    async def fetch(self, key: Hashable, fetch: Callable[[], Awaitable[T]]) -> T:
        """The page that another process makes, at its time: equal asks, as those of `ask`, are one question to it."""
        page: T = await self._wait(key, partial(self._fetch, key, fetch))
        return page

    async def _wait(self, key: Hashable, make: Callable[[], Awaitable[Any]]) -> Any:
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked()
            asked.task = asyncio.create_task(self._answer(key, asked, make), name=f"page {key}")
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asked.waiting[waiter] = None
        try:
            return await waiter
        finally:
            asked.waiting.pop(waiter, None)
            if not asked.waiting:  # all are told, or have left
                asked.task.cancel()
                if self._asked.get(key) is asked:
                    del self._asked[key]

    async def _answer(self, key: Hashable, asked: _Asked, make: Callable[[], Awaitable[Any]]) -> None:
        if before := self._making.get(key):
            await asyncio.wait([before])
        try:
            page = await make()
            await _tell(asked, lambda waiter: waiter.set_result(page))
        except Exception as error:
            failure = error
            await _tell(asked, lambda waiter: waiter.set_exception(failure))
        finally:
            for waiter in asked.waiting:  # none, unless the loop ends
                waiter.cancel()

    async def _render(
        self, key: Hashable, render: Callable[[], Pieces[Any]], counted: Callable[[], Awaitable[None]] | None
    ) -> Any:
        if counted is not None:  # other pages are made while this one waits for processes
            self._close(key)
            await counted()
        async with self._one:
            await asyncio.sleep(max(0.0, self._due_s - asyncio.get_running_loop().time()))
            if counted is None:
                self._close(key)
            return await self._in_pieces(render())

    async def _fetch(self, key: Hashable, fetch: Callable[[], Awaitable[Any]]) -> Any:
        self._close(key)
        return await fetch()

    def _close(self, key: Hashable) -> None:
        """Asks from now on get the next page, which is made after this one is passed on."""
        task = self._asked.pop(key).task
        self._making[key] = task
        task.add_done_callback(lambda _: self._making.pop(key))

    async def _in_pieces(self, pieces: Pieces[Any]) -> Any:
        clock = asyncio.get_running_loop().time
        took_s, began_s = 0.0, clock()
        try:
            while True:
                next(pieces)
                piece_s = clock() - began_s
                if piece_s >= PIECE_S:
                    took_s, began_s = took_s + piece_s, began_s + piece_s
                    await asyncio.sleep(0)
                    began_s = clock()
        except StopIteration as end:
            took_s += clock() - began_s
            return end.value
        finally:
            pieces.close()
            self._due_s = clock() + min(MOST_PAUSE_S, _PAUSE * took_s)

    def __repr__(self) -> str:
        return f"<RenderedPages {len(self._asked)} asked, {len(self._making)} made>"


async def _tell(asked: _Asked, tell: Callable[[asyncio.Future[Any]], None]) -> None:
    """A few in each turn of the loop: each has a reply to send."""
    for number, waiter in enumerate(list(asked.waiting), start=1):
        if not waiter.done():  # it has not left
            tell(waiter)
        if number % TOLD_IN_A_TURN == 0:
            await asyncio.sleep(0)
