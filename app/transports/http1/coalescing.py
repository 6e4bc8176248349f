"""The inference requests that were read in one turn of the event loop.

Under load many sockets are readable in a turn, and most of what a small request costs is Python's overhead for each.
Where a model is quick enough to be called on the event loop and nothing waits in line, requests with the same head
are therefore read, computed and answered together: one array, one call. Nothing can happen between, so nobody is
overtaken, expires or goes away meanwhile. To a quick model in another process (frontends/) they travel together.
In every other case, and where one of them is unusual or wrong, they begin one by one, in the order in which they
were read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from copy import copy

from app.core.errors import InvalidRequest, OutOfMemory
from app.core.inference import Array, InferenceRequest
from app.core.interfaces import Cancellable
from app.core.reply import COMPLETED, Answer
from app.transports.http.exchange import Coalesced
from app.transports.http.head import RequestHead
from app.transports.http.server_timing import server_timing
from app.transports.http1.direct_exchange import DirectExchange
from app.transports.http1.reply_buffer import ReplyBuffer

logger = logging.getLogger(__name__)

_Arrived = list[tuple[DirectExchange, bytes]]


class Coalescer:
    """Collects whole requests, and begins them when all sockets that are readable now were read."""

    def __init__(self, reply_buffer: ReplyBuffer) -> None:
        self._arrived: _Arrived = []
        self._reply_buffer = reply_buffer

    def add(self, exchange: DirectExchange, body: bytes) -> None:
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._begin)
        self._arrived.append((exchange, body))

    def _begin(self) -> None:
        arrived, self._arrived = self._arrived, []
        if len(arrived) > 1:
            for group in _by_head(arrived):
                try:
                    _answer_together(group, self._reply_buffer)
                except Exception:  # nothing accepted may be lost: they begin alone
                    logger.exception("A bug kept %d requests from being answered together", len(group))
        for exchange, body in arrived:
            if not (exchange.begun or exchange.answered or exchange.rejected_likewise(body)):
                exchange.begin(body)


def _by_head(arrived: _Arrived) -> list[_Arrived]:
    """Without those whose client has gone or whose time ran out while their bodies came: they are told alone."""
    groups: dict[RequestHead, _Arrived] = {}
    now = arrived[0][0].protocol.clock()
    for each in arrived:
        exchange = each[0]
        if not (exchange.answered or exchange.late(now)):
            groups.setdefault(exchange.head, []).append(each)
    return [group for group in groups.values() if len(group) > 1]


def _answer_together(group: _Arrived, reply_buffer: ReplyBuffer) -> None:
    """As far as that goes: who has not begun then is to begin alone."""
    first = group[0][0]
    together = first.protocol.begin_coalesced(
        first.head, [body for _, body in group], min(exchange.started_s for exchange, _ in group)
    )
    if together is None:
        return
    start = row = 0
    for count in _calls(together.rows, together.model.sizes.largest):
        rows = together.rows[start : start + count]
        inputs = {name: array[row : row + sum(rows)] for name, array in together.request.inputs.items()}
        _Company(group[start : start + count], rows, together, reply_buffer).submit(inputs)
        start, row = start + count, row + sum(rows)


def _calls(rows: Sequence[int], largest: int) -> Iterator[int]:
    """How many of the requests go into each call."""
    count = room = 0
    for each in rows:
        if count and room < each:
            yield count
            count = 0
        room = (room if count else largest) - each
        count += 1
    if count:
        yield count


class _Company:
    """Requests that are computed as one: where the answer to all of them goes."""

    def __init__(self, arrived: _Arrived, rows: Sequence[int], together: Coalesced, reply_buffer: ReplyBuffer) -> None:
        self._arrived = arrived
        self._rows = rows
        self._together = together
        self._reply_buffer = reply_buffer
        self._waiting = 0
        self._handle: Cancellable = COMPLETED

    def submit(self, inputs: dict[str, Array]) -> None:
        together = self._together
        request = InferenceRequest(inputs, together.request.signature, deadline_s=together.request.deadline_s)
        arrivals_s = [exchange.started_s for exchange, _ in self._arrived]
        handle = together.model.submit_coalesced(request, arrivals_s, self)
        if handle is None:
            return
        self._handle = handle
        for exchange, _ in self._arrived:
            if not (exchange.begun or exchange.answered):
                exchange.joined(self)
                self._waiting += 1

    def cancel(self) -> None:
        """One of them no longer waits. The others do, unless it was the last."""
        self._waiting -= 1
        if not self._waiting:
            self._handle.cancel()

    # --- the batcher's Reply ---

    def done(self) -> bool:
        return all(exchange.answered for exchange, _ in self._arrived)

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return None

    def set_result(self, answer: Answer, /) -> None:
        model, signature = self._together.model, self._together.request.signature
        if any(output.shape[:1] != (sum(self._rows),) for output in answer.outputs.values()):
            self._begin_alone()  # another process found out that its outputs are no rows
            return
        end, timing = 0, server_timing(answer.timing)
        with self._reply_buffer.held():
            for (exchange, _), count in zip(self._arrived, self._rows, strict=True):
                start, end = end, end + count
                if not exchange.answered:
                    exchange.concerns(model, signature)
                    outputs = {name: output[start:end] for name, output in answer.outputs.items()}
                    exchange.answer(self._together, outputs, timing)

    def set_exception(self, error: Exception, /) -> None:
        """Whoever is at fault is told apart; what hit all of them is told to each."""
        if isinstance(error, InvalidRequest | OutOfMemory):
            self._begin_alone()
            return
        for exchange, _ in self._arrived:
            if not exchange.answered:
                exchange.concerns(self._together.model, self._together.request.signature)
                exchange.set_exception(copy(error))

    def _begin_alone(self) -> None:
        for exchange, body in self._arrived:
            if not exchange.answered:
                exchange.begin(body)
