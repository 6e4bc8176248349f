"""Traces: the choice of traced requests, and the record of each until its reply.

Whether a request is traced is decided when it comes, before anything is made for it: the flag of its caller's span says
so, or chance where there is none. All other requests pay for that decision alone. Spans are made when the request is
over (app/instrumentation/tracing/), of times that are taken anyway.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from app.core.inference import NO_TIME, Array, BatchTiming
from app.transports.paths import without_needless_encoding
from app.transports.trace_context import ParentSpan

#: A model, its version and a signature; '' and 0 if the request did not reach them.
Asked = tuple[str, int, str]
NOTHING_ASKED: Asked = ("", 0, "")

Attributes = Mapping[str, str | int]

#: What in a path is a caller's choice; its place in routes is called by the singular.
_CHOSEN = re.compile(r"/(models|versions|labels|region)/[^/:]+")

#: Before what TensorFlow Serving's API is asked to do; anywhere else it belongs to what the caller chose.
_ENCODED_COLON = re.compile(r"%3A(?=(?:classify|regress|predict|predictStream)\Z)", re.IGNORECASE)

#: The codes that are the server's fault. Source: OpenTelemetry's semantic conventions for gRPC, server spans.
_GRPC_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})


class Ended(NamedTuple):
    """A request that is over: its protocol's name, its status, and monotonic seconds."""

    protocol: str
    code: str
    asked: Asked
    started_s: float
    ended_s: float


Record = Callable[["RequestTrace"], None]


class RequestTrace:
    """The record of one traced request, exported when it is over.

    Attributes:
        parent: the caller's span; None without one.
        error: the text of the error that it is answered with, if any; once it is over, only if the server is at fault.
        timing: where its time went, up to `answered_s` (monotonic seconds); no time if it was not computed.
        rows: the request's own; 0 if it was not computed.
        name, attributes: its span's, by OpenTelemetry's semantic conventions, once it is over.
        ended: how and when it ended, once it is over.
    """

    __slots__ = ("_record", "answered_s", "attributes", "ended", "error", "name", "parent", "rows", "timing")

    def __init__(self, parent: ParentSpan | None, record: Record) -> None:
        self.parent = parent
        self._record = record
        self.timing = NO_TIME
        self.answered_s = 0.0
        self.rows = 0
        self.error = ""
        self.name: str
        self.attributes: Attributes
        self.ended: Ended

    def again(self) -> RequestTrace:
        """The record of a further request of the same caller's span."""
        return RequestTrace(self.parent, self._record)

    def computed(self, timing: BatchTiming, rows: int, now: float) -> None:
        """The request's rows were computed, and its answer is there at `now` (monotonic seconds)."""
        self.timing, self.rows, self.answered_s = timing, rows, now

    def end_http(self, method: str, path: str, ended: Ended) -> None:
        """The request was answered over HTTP. `path`: as sent; empty if there is no such route."""
        attributes: dict[str, str | int] = {"http.request.method": method, "http.response.status_code": int(ended.code)}
        name = method
        if path:
            attributes["http.route"] = route = route_of(path)
            name = f"{method} {route}"
        self._end(name, attributes, ended, fault=ended.code >= "500")

    def end_rpc(self, method: str, ended: Ended) -> None:
        """The request was answered over gRPC. `method`: package.Service/Method."""
        attributes = {"rpc.system.name": "grpc", "rpc.method": method, "rpc.response.status_code": ended.code}
        self._end(method, attributes, ended, fault=ended.code in _GRPC_FAULTS)

    def _end(self, name: str, attributes: Attributes, ended: Ended, *, fault: bool) -> None:
        self.error = (self.error or ended.code) if fault else ""
        self.name, self.ended = name, ended
        self.attributes = {**attributes, "error.type": ended.code} if fault else attributes
        self._record(self)


class Tracing:
    """Decides which requests are traced.

    Args:
        share: the share of requests without a caller's span that are traced, 0 to 1.
        record: gets each traced request when it is over; it must not raise.
        most_per_s: the most requests a second that chance takes, and the most at once.
        chance: 0 to below 1, another at each call.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        share: float,
        record: Record,
        most_per_s: float = inf,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share = share
        self._record = record
        self._most_per_s = most_per_s
        self._chance = chance
        self._clock = clock
        self._left, self._left_s = most_per_s, clock()

    def begin(self, parent: ParentSpan | None) -> RequestTrace | None:
        """The trace of a request whose caller's span is this one; None if the request is not traced."""
        traced = (self._chance() < self._share and self._has_room()) if parent is None else parent.sampled
        return RequestTrace(parent, self._record) if traced else None

    def _has_room(self) -> bool:
        """May chance take one more request? It is counted then."""
        now_s = self._clock()
        self._left = min(self._most_per_s, self._left + (now_s - self._left_s) * self._most_per_s)
        self._left_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


def route_of(path: str) -> str:
    """`/v1/models/{model}:predict` of `/v1/models/digits:predict`."""
    path = _ENCODED_COLON.sub(":", without_needless_encoding(path))
    return _CHOSEN.sub(lambda found: f"/{found[1]}/{{{found[1].rstrip('s')}}}", path)


def rows_of(inputs: Mapping[str, Array]) -> int:
    """The rows of a request with these inputs; 0 if they have none."""
    first = next(iter(inputs.values()), None)
    return len(first) if first is not None and first.ndim else 0
