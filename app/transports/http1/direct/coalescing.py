"""Coalescing: requests that arrive in one iteration of the event loop are computed as one.

Under load many sockets are readable in one iteration, and most of what a small request costs is Python's overhead for
each request. If a row of the model is fast enough for inline execution, plain requests for it, whatever their heads,
are decoded into one array, submitted as one request, computed by one call and answered together: model by model. If
that call is made at once, nothing else runs in between, and no request is overtaken, expires or is cancelled meanwhile.
A fast model in another process (frontends/) gets them in one message. The only one for its model takes this way, too,
if others arrived with it: it is shorter.

In all other cases, and if one of them is unusual or invalid, the requests begin one by one, in order of arrival.

A turn of the event loop lasts as long as what is begun in it, and nothing else is answered meanwhile. So what takes
longer than a few milliseconds is left for the next turns; what arrives in these is begun behind it. All of this is a
burst: the batcher makes no short call before it has begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from app.codecs.json.writing import takes_long
from app.core.burst import Burst
from app.core.errors import InvalidRequest, OutOfMemory
from app.core.inference import Array, InferenceRequest
from app.core.interfaces import CoalescedHandle
from app.core.reply import COMPLETED, Answer, Reply
from app.transports.http.exchange import Coalesced
from app.transports.http.server_timing import server_timing
from app.transports.http1.direct.direct_exchange import DirectExchange
from app.transports.http1.direct.reply_buffer import ReplyBuffer

logger = logging.getLogger(__name__)

#: A request whose head is that much older than its last byte is not coalesced, nor one that spent a tenth of its time.
#: Chosen: reading every socket once takes less.
_SLOW_BODY_S = 0.05

#: No request begins alone later in a turn of the event loop. Chosen: some turns pass until `/livez` is answered.
_TURN_S = 0.003

#: At most this many requests, with this many bytes of bodies, are coalesced in a turn. Chosen: 10 ms at 10 ns a byte.
_MOST_TOGETHER, _MOST_BYTES = 512, 2**20

_Arrived = list[tuple[DirectExchange, bytes]]
_body = itemgetter(1)


class Coalescer:
    """Collects whole requests and begins them when every socket that is readable now has been read.

    Args:
        clock: monotonic seconds.
        burst: is told of requests that are left for the next turns.
    """

    def __init__(self, reply_buffer: ReplyBuffer, clock: Callable[[], float], burst: Burst) -> None:
        self._arrived: _Arrived = []
        self._alone: deque[tuple[DirectExchange, bytes]] = deque()  # of a turn before; none of them can be coalesced
        self._reply_buffer = reply_buffer
        self._clock = clock
        self._burst = burst

    def add(self, exchange: DirectExchange, body: bytes) -> None:
        if not (self._arrived or self._alone):
            asyncio.get_running_loop().call_soon(self._begin)
        self._arrived.append((exchange, body))

    def _begin(self) -> None:
        try:
            self._begin_for_a_turn()
        finally:  # whatever happens, the others begin
            more = bool(self._alone or self._arrived)
            if more:
                asyncio.get_running_loop().call_soon(self._begin)
            if more or self._burst.is_open:
                self._burst.turn_ended(more)

    def _begin_for_a_turn(self) -> None:
        end_s = self._clock() + _TURN_S
        alone = self._alone
        if not alone:
            alone.extend(self._coalesce())
        while alone:
            exchange, body = alone.popleft()
            if not (exchange.begun or exchange.answered or exchange.reject_by_head(body)):
                exchange.begin(body)
                if self._clock() >= end_s:
                    break

    def _coalesce(self) -> _Arrived:
        """Submits together what can be; returns all that it looked at."""
        first = _for_a_turn(self._arrived)
        arrived, self._arrived = self._arrived[:first], self._arrived[first:]
        if len(arrived) > 1:
            for group in _by_model(arrived):
                try:
                    _submit_group(group, self._reply_buffer)
                except Exception:  # no accepted request may be lost: each begins alone
                    logger.exception("A bug kept %d requests from being coalesced", len(group))
        return arrived


def _for_a_turn(arrived: _Arrived) -> int:
    """How many of the first are few enough; at least one."""
    if len(arrived) <= _MOST_TOGETHER and sum(map(len, map(_body, arrived))) <= _MOST_BYTES:
        return len(arrived)
    sizes = accumulate(len(body) for _, body in arrived[:_MOST_TOGETHER])
    return max(1, sum(size <= _MOST_BYTES for size in sizes))


def _by_model(arrived: _Arrived) -> list[_Arrived]:
    """Groups of requests that one model computes together, and of the same caller if callers are told apart.

    Requests whose client has gone, or that began long before the others since their bodies came slowly, are left out:
    they begin alone, because all of a group have the deadline of the earliest.
    """
    groups: dict[object, _Arrived] = {}  # by head, and by caller; heads with the same key have the same group
    of_key: dict[object, _Arrived] = {}
    protocol = arrived[0][0].protocol
    callers = protocol.limits.callers
    earliest_s = protocol.clock() - min(_SLOW_BODY_S, protocol.limits.request_timeout_ms / 1e4)
    for each in arrived:
        exchange = each[0]
        if exchange.started_s < earliest_s or exchange.answered:
            continue
        head = exchange.head if callers is None else (exchange.head, exchange.caller)
        group = groups.get(head)
        if group is None:
            key = exchange.protocol.coalescing_key(exchange.head)
            group = [] if key is None else of_key.setdefault((key, "" if callers is None else exchange.caller), [])
            groups[head] = group
        group.append(each)
    return list(of_key.values())


def _submit_group(group: _Arrived, reply_buffer: ReplyBuffer) -> None:
    """Submits requests of one model in as few calls as possible. Those that have not begun then begin alone."""
    first = group[0][0]
    coalesced = first.protocol.begin_coalesced(
        first.head, [body for _, body in group], min(exchange.started_s for exchange, _ in group)
    )
    if coalesced is None:
        return
    start = row = 0
    for count in _split(coalesced.rows, coalesced.max_rows):
        rows = coalesced.rows[start : start + count]
        inputs = {name: array[row : row + sum(rows)] for name, array in coalesced.request.inputs.items()}
        CoalescedRequests(group[start : start + count], rows, coalesced, reply_buffer).submit(inputs)
        start, row = start + count, row + sum(rows)


def _split(rows: Sequence[int], largest: int) -> Iterator[int]:
    """How many of the requests go into each call. `rows`: of each request; `largest`: rows of a call."""
    count = room = 0
    for each in rows:
        if count and room < each:
            yield count
            count = 0
        room = (room if count else largest) - each
        count += 1
    if count:
        yield count


@dataclass(slots=True, eq=False, repr=False)
class CoalescedRequests:
    """Requests that are computed by one call; it gets the answer and gives each request its own rows."""

    arrived: _Arrived
    rows: Sequence[int]
    coalesced: Coalesced
    reply_buffer: ReplyBuffer
    waiting: int = 0  # requests that are not cancelled
    handle: CoalescedHandle = COMPLETED

    def submit(self, inputs: dict[str, Array]) -> None:
        coalesced = self.coalesced
        request = InferenceRequest(inputs, coalesced.request.signature, deadline_s=coalesced.request.deadline_s)
        request.caller = self.arrived[0][0].caller
        arrivals_s = [exchange.started_s for exchange, _ in self.arrived]
        handle = coalesced.model.submit_coalesced(request, arrivals_s, self)
        if handle is None:
            return
        self.handle = handle
        for number, (exchange, _) in enumerate(self.arrived):
            if not (exchange.begun or exchange.answered):
                exchange.submitted(_One(self, number))
                self.waiting += 1

    def cancel(self, number: int) -> None:
        """Cancels one of the requests, by its number."""
        self.waiting -= 1
        if self.waiting:
            self.handle.cancel_one(number)
        else:
            self.handle.cancel()

    # --- the batcher's Reply ---

    def done(self) -> bool:
        return all(exchange.answered for exchange, _ in self.arrived)

    def apart(self) -> list[Reply]:
        return [_OwnReply(exchange, self.coalesced) for exchange, _ in self.arrived]

    def set_result(self, answer: Answer, /) -> None:
        outputs, timing = answer.outputs, server_timing(answer.timing)
        long = takes_long(outputs)
        with self.reply_buffer.held():
            bodies = None if long else self._bodies(outputs)
            if bodies is None:
                self._answer_each(outputs, timing, long=long)
            else:
                self._answer_all(bodies, timing)

    def _bodies(self, outputs: dict[str, Array]) -> Sequence[bytes] | None:
        try:
            return self.coalesced.bodies(outputs, self.rows)
        except Exception:  # of one of them: each is written alone, and has its own error
            return None

    def _answer_all(self, bodies: Sequence[bytes], timing: bytes) -> None:
        """All begin with the same lines, up to the value of Content-Length."""
        model, signature = self.coalesced.model, self.coalesced.request.signature
        asked = model.name, model.version, signature
        now, start = self.arrived[0][0].protocol.clock(), b""
        for (exchange, _), body in zip(self.arrived, bodies, strict=True):
            if not exchange.answered:
                start = start or exchange.first_lines(self.coalesced.content_type, timing)
                exchange.answer_with(start, body, asked, now)

    def _answer_each(self, outputs: dict[str, Array], timing: bytes, *, long: bool) -> None:
        model, signature = self.coalesced.model, self.coalesced.request.signature
        end = 0
        for (exchange, _), count in zip(self.arrived, self.rows, strict=True):
            start, end = end, end + count
            if not exchange.answered:
                exchange.record_model(model, signature)
                own = {name: output[start:end] for name, output in outputs.items()}
                exchange.answer(self.coalesced, own, timing, may_be_long=long)

    def set_exception(self, error: Exception, /) -> None:
        """Finds the invalid request by beginning each alone; an error of another kind is the reply to all of them."""
        if isinstance(error, InvalidRequest | OutOfMemory):
            self._begin_alone()
            return
        for exchange, _ in self.arrived:
            if not exchange.answered:
                exchange.record_model(self.coalesced.model, self.coalesced.request.signature)
                exchange.set_exception(copy(error))

    def _begin_alone(self) -> None:
        for exchange, body in self.arrived:
            if not exchange.answered:
                exchange.begin(body)


class _One(NamedTuple):
    """The handle of one of them."""

    requests: CoalescedRequests
    number: int

    def cancel(self) -> None:
        self.requests.cancel(self.number)


@dataclass(slots=True, eq=False, repr=False)
class _OwnReply:
    """The reply of one of several coalesced requests, after the batcher has taken them apart."""

    exchange: DirectExchange
    coalesced: Coalesced

    def done(self) -> bool:
        return self.exchange.answered

    def set_result(self, answer: Answer, /) -> None:
        self.exchange.record_model(self.coalesced.model, self.coalesced.request.signature)
        self.exchange.answer(self.coalesced, answer.outputs, server_timing(answer.timing), may_be_long=True)

    def set_exception(self, error: Exception, /) -> None:
        self.exchange.record_model(self.coalesced.model, self.coalesced.request.signature)
        self.exchange.set_exception(error)
