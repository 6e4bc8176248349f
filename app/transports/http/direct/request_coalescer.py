"""Coalescing: requests that arrive in one iteration of the event loop are computed as one.

Under load many sockets are readable in one iteration, and most of what a small request costs is Python's overhead for
each request. If a row of the model is fast enough for inline execution, plain requests for it, whatever their heads,
are decoded into one array, submitted as one request, computed by one call and answered together. Those for several
models are all decoded, then all computed, then all answered (app/transports/requests_of_a_turn.py: `Answers`). Where
calls are made at once, nothing else runs in between, and no request is overtaken, expires or is cancelled meanwhile.
A fast model in another process (frontends/) gets them in one message. The only one for its model takes this way, too,
if others arrived with it: it is shorter.

In all other cases, and if one of them is unusual or invalid, the requests begin one by one, in order of arrival
(app/transports/requests_of_a_turn.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

from app.codecs.json.writing import takes_long
from app.core.burst import Burst
from app.core.errors import InvalidRequest, OutOfMemory, ServingError
from app.core.inference import Array, InferenceRequest
from app.core.interfaces import CoalescedHandle
from app.core.reply import COMPLETED, Answer, Reply
from app.transports.fairness.fair_queue import Share
from app.transports.http.direct.direct_exchange import DirectExchange
from app.transports.http.direct.reply_buffer import ReplyBuffer
from app.transports.http.exchange import Coalesced
from app.transports.http.server_timing import server_timing
from app.transports.requests_of_a_turn import Answers, RequestsOfATurn

logger = logging.getLogger(__name__)

#: A request whose head is that much older than its last byte is not coalesced, nor one that spent a tenth of its time.
#: Chosen: reading every socket once takes less.
_SLOW_BODY_S = 0.05

_Arrived = list[tuple[DirectExchange, bytes]]


class RequestCoalescer(RequestsOfATurn[DirectExchange]):
    """Begins requests of HTTP."""

    def __init__(self, reply_buffer: ReplyBuffer, clock: Callable[[], float], burst: Burst) -> None:
        super().__init__(clock, burst)
        self._reply_buffer = reply_buffer

    def add(self, request: DirectExchange, content: bytes) -> None:
        """Begins it soon, if it may be sent: here each request on the fast path is counted for its caller."""
        permit = request.head.permit
        if permit is not None:
            try:
                permit.use()
            except ServingError as error:
                request.set_exception(error)
                return
        super().add(request, content)

    def share_of(self, request: DirectExchange) -> Share:
        return request.share

    def begin_together(self, arrived: Sequence[tuple[DirectExchange, bytes]]) -> _Arrived:
        read: list[CoalescedRequests] = []
        for group in _by_model(arrived):
            try:
                read += _read_group(group, self._reply_buffer, self.answers)
            except Exception:  # no accepted request may be lost: each begins alone
                logger.exception("A bug kept %d requests from being computed together", len(group))
        self.answers.submit(read)
        return [each for each in arrived if not each[0].begun]

    def begin_alone(self, exchange: DirectExchange, body: bytes) -> bool:
        if exchange.begun or exchange.answered or exchange.reject_by_head(body):
            return False
        exchange.begin(body)
        return True


def _by_model(arrived: Sequence[tuple[DirectExchange, bytes]]) -> list[_Arrived]:
    """Groups of requests that one model computes together, and of the same caller if callers are told apart.

    Requests whose client has gone, or that began long before the others since their bodies came slowly, are left out:
    they begin alone, because all of a group have the deadline of the earliest.
    """
    groups: dict[object, _Arrived] = {}  # by what is asked, and by caller; what has the same key has the same group
    of_key: dict[object, _Arrived] = {}
    protocol = arrived[0][0].protocol
    options = protocol.options
    callers = options.callers is not None
    earliest_s = protocol.clock() - min(_SLOW_BODY_S, options.request_timeout_ms / 1e4)
    for each in arrived:
        exchange = each[0]
        if exchange.started_s < earliest_s or exchange.answered:
            continue
        alike = exchange.head.alike
        asked = (alike, exchange.caller) if callers else alike
        group = groups.get(asked)
        if group is None:
            key = exchange.protocol.coalescing_key(exchange.head)
            group = [] if key is None else of_key.setdefault((key, exchange.caller if callers else ""), [])
            groups[asked] = group
        group.append(each)
    return list(of_key.values())


def _read_group(group: _Arrived, reply_buffer: ReplyBuffer, answers: Answers) -> Iterator[CoalescedRequests]:
    """The calls, as few as possible, for requests of one model. A request in none of them begins alone."""
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
        yield CoalescedRequests(group[start : start + count], start, rows, coalesced, inputs, reply_buffer, answers)
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
    """Requests that are computed by one call; it gets the answer and gives each request its own rows.

    `first`: the number of the first of them among those that were read together.
    """

    arrived: _Arrived
    first: int
    rows: Sequence[int]
    coalesced: Coalesced
    inputs: dict[str, Array]
    reply_buffer: ReplyBuffer
    answers: Answers
    computed: bool = False
    waiting: int = 0  # requests that are not cancelled
    handle: CoalescedHandle = COMPLETED

    def submit(self) -> None:
        coalesced = self.coalesced
        request = InferenceRequest(self.inputs, coalesced.request.signature, deadline_s=coalesced.request.deadline_s)
        request.caller = self.arrived[0][0].caller
        arrivals_s = [exchange.started_s for exchange, _ in self.arrived]
        handle = coalesced.model.submit_coalesced(request, arrivals_s, self)
        if handle is None or self.computed:
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
        numbered = enumerate(self.arrived, self.first)
        return [_OwnReply(exchange, self.coalesced, number) for number, (exchange, _) in numbered]

    def set_result(self, answer: Answer, /) -> None:
        self.computed = True
        self.answers.give(self, answer)

    def answer(self, answer: Answer) -> None:
        outputs, timing = answer.outputs, server_timing(answer.timing)
        protocol = self.arrived[0][0].protocol
        if protocol.tracing is not None:
            now = protocol.clock()
            for (exchange, _), rows in zip(self.arrived, self.rows, strict=True):
                if exchange.trace is not None:
                    exchange.trace.computed(answer.timing, rows, now)
        long = takes_long(outputs)
        with self.reply_buffer.held():
            bodies = None if long else self._bodies(outputs)
            if bodies is None:
                self._answer_each(outputs, timing, long=long)
            else:
                self._answer_all(bodies, timing)

    def _bodies(self, outputs: dict[str, Array]) -> Sequence[bytes] | None:
        try:
            return self.coalesced.bodies(slice(self.first, self.first + len(self.rows)), outputs)
        except Exception:  # of one of them: each is written alone, and has its own error
            return None

    def _answer_all(self, bodies: Sequence[bytes], timing: bytes) -> None:
        """Replies of one version of HTTP begin with the same lines, up to the value of Content-Length."""
        model, signature = self.coalesced.model, self.coalesced.request.signature
        asked = model.name, model.version, signature
        protocol = self.arrived[0][0].protocol
        now = protocol.clock()
        seconds: list[float] = []
        starts: dict[str, bytes] = {}
        for (exchange, _), body in zip(self.arrived, bodies, strict=True):
            if exchange.answered:
                continue
            start = starts.get(exchange.http_version)
            if start is None:
                start = exchange.ok_lines(self.coalesced.content_type, timing)
                starts[exchange.http_version] = start
            if exchange.answer_ok(start, body, asked, now):
                seconds.append(now - exchange.started_s)
        if seconds:
            protocol.finished_together(asked, seconds)

    def _answer_each(self, outputs: dict[str, Array], timing: bytes, *, long: bool) -> None:
        model, signature = self.coalesced.model, self.coalesced.request.signature
        end = 0
        for number, ((exchange, _), count) in enumerate(zip(self.arrived, self.rows, strict=True), self.first):
            start, end = end, end + count
            if not exchange.answered:
                exchange.record_model(model, signature)
                own = {name: output[start:end] for name, output in outputs.items()}
                exchange.answer(self.coalesced, number, own, timing, may_be_long=long)

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
    number: int

    def done(self) -> bool:
        return self.exchange.answered

    def set_result(self, answer: Answer, /) -> None:
        self.exchange.record_model(self.coalesced.model, self.coalesced.request.signature)
        timing = server_timing(answer.timing)
        exchange = self.exchange
        if exchange.trace is not None:
            exchange.trace.computed(answer.timing, self.coalesced.rows[self.number], exchange.protocol.clock())
        exchange.answer(self.coalesced, self.number, answer.outputs, timing, may_be_long=True)

    def set_exception(self, error: Exception, /) -> None:
        self.exchange.record_model(self.coalesced.model, self.coalesced.request.signature)
        self.exchange.set_exception(error)
