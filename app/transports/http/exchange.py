"""An HTTP request until its reply: its head and deadline, its computation, and the reply to an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.access.access import Permit
from app.core.errors import ServingError
from app.core.inference import Array, InferenceRequest, InferenceResponse
from app.core.interfaces import Computing, ServedModel
from app.transports.coalescing.coalescer import CoalescedRequest
from app.transports.http.asgi import Receive, Scope, path_as_sent
from app.transports.http.head import RequestHead
from app.transports.http.late_replies import ReplyLater
from app.transports.http.replies import Sendable, error_reply, internal_error
from app.transports.memory.body_room import growth_of_content
from app.transports.memory.client_memory import ClientMemory
from app.transports.request_id import REQUEST_ID, checked, shown
from app.transports.request_trace import NOTHING_ASKED, RequestTrace

logger = logging.getLogger(__name__)


class Exchange:
    """One request until its reply, with the fields of its event.

    Attributes:
        asked: the model, its version and the signature, for the event.
        timing: the value of Server-Timing; empty unless the request was computed.
        request_id: as the client sent it; empty if it did not. Heads do not have it, which many requests share.
        denied: the name of the caller to whom access was denied; empty unless that is known.
        trace: None unless it is traced.
    """

    __slots__ = ("asked", "denied", "head", "request_id", "started_s", "timing", "trace")

    def __init__(self, head: RequestHead, started_s: float, request_id: bytes = b"") -> None:
        self.head = head
        self.request_id = request_id
        self.started_s = started_s
        self.timing = b""
        self.denied = ""
        self.trace: RequestTrace | None = None
        self.asked = NOTHING_ASKED

    @property
    def address(self) -> str:
        """The client's address, without the port; empty if it is not known."""
        return ""

    @property
    def permit(self) -> Permit | None:
        """The permit of the request's credential; None where none is needed."""
        return self.head.permit

    @property
    def principal(self) -> str:
        """The name that the caller has proven; empty where none is needed."""
        permit = self.head.permit
        return self.denied if permit is None else permit.principal.name

    def record_model(self, model: ServedModel, signature: str = "") -> None:
        """Records the model that is asked, and the signature that is to be computed, if any, for the event."""
        self.asked = model.name, model.version, signature


class AsgiExchange(Exchange):
    """A request that arrives by ASGI. `reserved`: bytes for its inflated body and its long reply."""

    __slots__ = ("client", "receive", "reserved")

    def __init__(self, scope: Scope, receive: Receive, started_s: float) -> None:
        query: bytes = scope.get("query_string", b"")
        head = RequestHead(scope["method"], path_as_sent(scope), query, scope["headers"])
        super().__init__(head, started_s, checked(head.header(REQUEST_ID) or b""))
        self.receive = receive
        self.reserved = 0.0
        #: The address and the port that the request comes from; '' and 0 if they are not known.
        self.client: tuple[str, int] = tuple(scope.get("client") or ("", 0))

    @property
    def address(self) -> str:
        return self.client[0]

    def reserve_inflated(self, memory: ClientMemory, size: int) -> None:
        """Memory for what this much of its inflated body may become. Raises NoMemoryLeft, BodyOverMemory."""
        cost = memory.room.cost(size, growth_of_content(self.head.headers))
        more = max(0.0, cost - self.reserved)
        if not memory.room.take(more):
            raise memory.rejection(cost, more)
        self.reserved += more


def own_port(scope: Scope) -> int:
    """The port that a request came to; 0 if it is not known."""
    server = scope.get("server")
    return (server[1] or 0) if server else 0


@dataclass(slots=True)
class Computation:
    """The computation that a request asks for, and the way its reply is written.

    `reply` raises ServingError if the outputs cannot be written as asked.
    """

    model: Computing
    request: InferenceRequest
    reply: Callable[[InferenceResponse], Sendable | ReplyLater]


@dataclass(slots=True)
class Coalesced(CoalescedRequest):
    """Several requests of HTTP as one.

    Attributes:
        reply: the reply to one request, given its number and the outputs of its own rows, which may be long if the
            third argument is true.
        bodies: writes the bodies of several replies at once, if they are not long, given the requests' numbers and all
            of their outputs; None: they are written one by one. Each is that of `reply`, which has no other headers.
        content_type: the type of the bodies.
    """

    reply: Callable[[int, dict[str, Array], bool], Sendable | ReplyLater]
    bodies: Callable[[slice, Mapping[str, Array]], Sequence[bytes] | None]
    content_type: bytes = b"application/json"


def failure_reply(error: Exception, exchange: Exchange) -> Sendable:
    """The reply for an error. A bug of ours is logged, and its reply has no details."""
    if isinstance(error, ServingError):
        if exchange.trace is not None:
            exchange.trace.error = str(error)
        return error_reply(error)
    model, version, _ = exchange.asked
    fields = {"request_id": shown(exchange.request_id), "model": model, "version": version if model else None}
    logger.error("A bug answered %s %s", exchange.head.method, exchange.head.path, exc_info=error, extra=fields)
    return internal_error()
