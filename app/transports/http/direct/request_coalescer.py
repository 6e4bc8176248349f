"""Coalescing: requests that arrive in one iteration of the event loop are computed as one.

Under load many sockets are readable in one iteration, and most of what a small request costs is Python's overhead for
each request. If a row of the model is fast enough for inline execution, plain requests for it, whatever their heads,
are decoded into one array, submitted as one request, computed by one call and answered together. Those for several
models are all decoded, then all computed, then all answered (app/transports/joined_requests.py: `Answers`). Where
calls are made at once, nothing else runs in between, and no request is overtaken, expires or is cancelled meanwhile.
A fast model in another process (frontends/) gets them in one message. The only one for its model takes this way, too,
if others arrived with it: it is shorter.

In all other cases, and if one of them is unusual or invalid, the requests begin one by one, in order of arrival
(app/transports/requests_of_a_turn.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from app.codecs.json.writing import takes_long
from app.core.burst import Burst
from app.core.errors import ServingError
from app.core.inference import InferenceRequest
from app.core.joining.groups import alike_groups, split_request
from app.core.reply import Answer, Outputs
from app.transports.fairness.fair_queue import Share
from app.transports.http.direct.direct_exchange import DirectExchange
from app.transports.http.direct.reply_buffer import ReplyBuffer
from app.transports.http.exchange import Coalesced
from app.transports.http.server_timing import server_timing
from app.transports.joined_requests import Answers, JoinedRequests
from app.transports.requests_of_a_turn import RequestsOfATurn

logger = logging.getLogger(__name__)

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
        read: list[JoinedExchanges] = []
        for group in _by_model(arrived):
            try:
                read += self._read_group(group)
            except Exception:  # no accepted request may be lost: each begins alone
                logger.exception("A bug kept %d requests from being computed together", len(group))
        self.answers.submit(read)
        return [each for each in arrived if not each[0].begun]

    def begin_alone(self, exchange: DirectExchange, body: bytes) -> bool:
        if exchange.begun or exchange.answered or exchange.reject_by_head(body):
            return False
        exchange.begin(body)
        return True

    def _read_group(self, group: _Arrived) -> Iterator[JoinedExchanges]:
        """The calls, as few as possible, for requests of one model. A request in none of them begins alone."""
        first = group[0][0]
        bodies, started_s = [body for _, body in group], min([exchange.started_s for exchange, _ in group])
        coalesced = first.protocol.begin_coalesced(first.head, bodies, started_s)
        if coalesced is None:
            return
        coalesced.request.caller = first.caller
        for numbers, request in split_request(coalesced.request, coalesced.rows, coalesced.max_rows):
            yield JoinedExchanges(group[numbers], numbers, coalesced, request, self.answers, self._reply_buffer)


def _by_model(arrived: Sequence[tuple[DirectExchange, bytes]]) -> list[_Arrived]:
    """Groups of requests that one model computes together, and of the same caller if callers are told apart.

    Requests whose client has gone are left out, and so are those with a deadline of their own, since their bodies came
    slowly: they begin alone.
    """
    # 1. By what is asked, and by caller; what has the same key has the same group.
    groups: dict[object, _Arrived] = {}
    of_key: dict[object, _Arrived] = {}
    protocol = arrived[0][0].protocol
    options = protocol.options
    callers = options.callers is not None
    for each in arrived:
        exchange = each[0]
        if exchange.answered:
            continue
        alike = exchange.head.alike
        asked = (alike, exchange.caller) if callers else alike
        group = groups.get(asked)
        if group is None:
            key = exchange.protocol.coalescing_key(exchange.head)
            group = [] if key is None else of_key.setdefault((key, exchange.caller if callers else ""), [])
            groups[asked] = group
        group.append(each)

    # 2. By deadlines.
    now, timeout_s = protocol.clock(), options.request_timeout_ms / 1e3
    found: list[_Arrived] = []
    for group in of_key.values():
        alike = alike_groups(group, [exchange.started_s + timeout_s for exchange, _ in group], now)
        found += alike if len(alike) == 1 else [each for each in alike if len(each) > 1]
    return found


class JoinedExchanges(JoinedRequests[DirectExchange]):
    """The JoinedReply of exchanges; it writes the bodies of all replies at once where it can.

    Args:
        numbers: of the exchanges among those that `coalesced` was read of.
        request: the part of `coalesced.request` that is theirs.
    """

    __slots__ = ("_coalesced", "_numbers", "_reply_buffer")

    def __init__(  # noqa: PLR0917 - one is made for each call, by one caller
        self,
        arrived: _Arrived,
        numbers: slice,
        coalesced: Coalesced,
        request: InferenceRequest,
        answers: Answers,
        reply_buffer: ReplyBuffer,
    ) -> None:
        super().__init__(arrived, coalesced.rows[numbers], coalesced.model, request, answers)
        self._coalesced = coalesced
        self._numbers = numbers
        self._reply_buffer = reply_buffer

    def has_time(self, number: int) -> bool:
        exchange = self.parts[number]
        protocol = exchange.protocol
        return exchange.started_s + protocol.options.request_timeout_ms / 1e3 > protocol.clock()

    # --- the answer to all of them ---

    def answer(self, answer: Answer) -> None:
        outputs, timing = answer.outputs, server_timing(answer.timing)
        protocol = self.parts[0].protocol
        if protocol.tracing is not None:
            now = protocol.clock()
            for exchange, rows in zip(self.parts, self.part_rows, strict=True):
                if exchange.trace is not None:
                    exchange.trace.computed(answer.timing, rows, now)
        long = takes_long(outputs)
        with self._reply_buffer.held():
            bodies = None if long else self._bodies(outputs)
            if bodies is None:
                self._answer_each(outputs, timing, long=long)
            else:
                self._answer_all(bodies, timing)

    def _bodies(self, outputs: Outputs) -> Sequence[bytes] | None:
        try:
            return self._coalesced.bodies(self._numbers, outputs)
        except Exception:  # of one of them: each is written alone, and has its own error
            return None

    def _answer_all(self, bodies: Sequence[bytes], timing: bytes) -> None:
        """Replies of one version of HTTP begin with the same lines, up to the value of Content-Length."""
        asked = self.model.name, self.model.version, self.request.signature
        protocol = self.parts[0].protocol
        now = protocol.clock()
        seconds: list[float] = []
        starts: dict[str, bytes] = {}
        for exchange, body in zip(self.parts, bodies, strict=True):
            if exchange.answered:
                continue
            start = starts.get(exchange.http_version)
            if start is None:
                start = exchange.ok_lines(self._coalesced.content_type, timing)
                starts[exchange.http_version] = start
            if exchange.answer_ok(start, body, asked, now):
                seconds.append(now - exchange.started_s)
        if seconds:
            protocol.finished_together(asked, seconds)

    def _answer_each(self, outputs: Outputs, timing: bytes, *, long: bool) -> None:
        end = 0
        for number, (exchange, count) in enumerate(zip(self.parts, self.part_rows, strict=True)):
            start, end = end, end + count
            if not exchange.answered:
                own = {name: output[start:end] for name, output in outputs.items()}
                self._answer_one(number, own, timing, may_be_long=long)

    # --- the answer to one of them, after they were separated ---

    def give(self, number: int, answer: Answer) -> None:
        exchange = self.parts[number]
        if exchange.trace is not None:
            exchange.trace.computed(answer.timing, self.part_rows[number], exchange.protocol.clock())
        self._answer_one(number, answer.outputs, server_timing(answer.timing), may_be_long=True)

    def _answer_one(self, number: int, outputs: Outputs, timing: bytes, *, may_be_long: bool) -> None:
        exchange = self.parts[number]
        exchange.record_model(self.model, self.request.signature)
        exchange.answer(self._coalesced, self._numbers.start + number, outputs, timing, may_be_long=may_be_long)
