"""Coalescing of HTTP: requests that arrive in one turn of the event loop are computed as one.

Under load many sockets are readable in one turn, and most of what a small request costs is Python's overhead for each
request. If a row of the model is fast enough for inline execution, its plain requests, whatever their heads, become
one: decoded into one array, computed by one call, and answered together (app/transports/coalescing/coalescer.py). Where
calls are made at once, nothing else runs in between, and no request is overtaken, expires or is cancelled meanwhile. A
fast model in another process (frontends/) gets the requests in one message. The only request for its model takes this
way, too, if others arrived with it: it is shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.codecs.json.writing import takes_long
from app.core.burst import Burst
from app.core.errors import ServingError
from app.core.reply import Answer, Outputs
from app.transports.coalescing.coalescer import Coalescer, JoinedRequests
from app.transports.fairness.fair_queue import Share
from app.transports.http.direct.direct_exchange import DirectExchange
from app.transports.http.direct.reply_buffer import ReplyBuffer
from app.transports.http.exchange import Coalesced
from app.transports.http.server_timing import server_timing

_Arrived = list[tuple[DirectExchange, bytes]]


class JoinedExchanges(JoinedRequests[DirectExchange, Coalesced]):
    """The JoinedReply of exchanges; it writes the bodies of all replies at once where it can."""

    __slots__ = ()
    _coalescer: RequestCoalescer

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
        with self._coalescer.reply_buffer.held():
            bodies = None if long else self._bodies(outputs)
            if bodies is None:
                self._answer_each(outputs, timing, long=long)
            else:
                self._answer_all(bodies, timing)

    def _bodies(self, outputs: Outputs) -> Sequence[bytes] | None:
        try:
            return self._read.bodies(self._numbers, outputs)
        except Exception:  # of one of them: each is written alone, and has its own error
            return None

    def _answer_all(self, bodies: Sequence[bytes], timing: bytes) -> None:
        """Replies of one version of HTTP begin with the same lines, up to the value of Content-Length."""
        asked = self._read.model.name, self._read.model.version, self._request.signature
        protocol = self.parts[0].protocol
        now = protocol.clock()
        seconds: list[float] = []
        starts: dict[str, bytes] = {}
        for exchange, body in zip(self.parts, bodies, strict=True):
            if exchange.answered:
                continue
            start = starts.get(exchange.http_version)
            if start is None:
                start = exchange.ok_lines(self._read.content_type, timing)
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
        exchange.record_model(self._read.model, self._request.signature)
        exchange.answer(self._read, self._numbers.start + number, outputs, timing, may_be_long=may_be_long)


class RequestCoalescer(Coalescer[DirectExchange, Coalesced]):
    """Begins requests of HTTP."""

    joined = JoinedExchanges

    def __init__(self, reply_buffer: ReplyBuffer, clock: Callable[[], float], burst: Burst) -> None:
        super().__init__(clock, burst)
        self.reply_buffer = reply_buffer

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

    def groups(self, arrived: Sequence[tuple[DirectExchange, bytes]]) -> dict[object, _Arrived]:
        """Groups of requests that one model computes together. Requests whose client has gone are left out."""
        groups: dict[object, _Arrived] = {}  # by what is asked, and by caller; what has the same key has the same group
        of_key: dict[object, _Arrived] = {}
        callers = arrived[0][0].protocol.options.callers is not None
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
        return of_key

    def deadlines_s(self, arrived: Sequence[tuple[DirectExchange, bytes]]) -> list[float]:
        timeout_s = arrived[0][0].protocol.options.request_timeout_ms / 1e3
        return [exchange.started_s + timeout_s for exchange, _ in arrived]

    def read(self, key: object, group: _Arrived, deadline_s: float) -> Coalesced | None:  # noqa: ARG002 - see the head
        first = group[0][0]
        read = first.protocol.begin_coalesced(first.head, [body for _, body in group], deadline_s)
        if read is not None:
            read.request.caller = first.caller
        return read

    def begin_alone(self, exchange: DirectExchange, body: bytes) -> bool:
        if exchange.begun or exchange.answered or exchange.reject_by_head(body):
            return False
        exchange.begin(body)
        return True
