"""The parts that every gRPC protocol shares: a call as its protocol sees it, and its event, log line and trace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from app.access.access import Access, Permit
from app.core.errors import ServingError
from app.core.events import AccessDenied, Administered, Listener, RequestFinished
from app.core.inference import InferenceRequest, InferenceResponse
from app.core.interfaces import ServedModel
from app.transports.access_log import GRPC, AccessLog
from app.transports.grpc.codes import Failure, failure_of
from app.transports.http.long_bodies.reading_process import Reader, ReadHere
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.memory.client_memory import ClientMemory
from app.transports.request_caller import CallerRule
from app.transports.request_trace import Ended, RequestTrace, Tracing, rows_of


class GrpcCall:
    """One call, or one message of a stream, until its reply: its caller, its deadline and the fields of its event.

    Attributes:
        started_s: monotonic seconds.
        deadline_s: monotonic seconds; the caller's deadline, or the server's if that is earlier.
        path: the method's, /package.Service/Method.
        client_id: the client's x-request-id; empty without one.
        trace: None unless it is traced.
        permit: what the caller's credential permits; None where no credential is needed.
        priority: the priority in the metadata; 0 without one.
        caller: the name of its caller, for fair shares; empty if callers are not told apart.
        client: the address and the port that it comes from; '' and 0 for a Unix socket.
        request_id: the id of a request in a stream, which its error goes back with.
        model, version, signature: what it asks for, as far as that is known.
        code: the name of the status code; empty while the call has not ended.
        sent_bytes: the bytes of the reply; 0 if they are not known.
        target: what the call changes of what is served, for the audit log.
        denied: the name of the caller that may not make it, as far as that is known.
    """

    __slots__ = (
        "caller", "client", "client_id", "code", "deadline_s", "denied", "model", "path", "permit", "priority",
        "request_id", "sent_bytes", "signature", "started_s", "target", "trace", "version",
    )  # fmt: skip

    def __init__(
        self,
        started_s: float,
        deadline_s: float,
        path: str = "",
        client_id: bytes = b"",
        trace: RequestTrace | None = None,
    ) -> None:
        self.started_s = started_s
        self.deadline_s = deadline_s
        self.path = path
        self.client_id = client_id
        self.trace = trace
        self.client: tuple[str, int] = ("", 0)
        self.permit: Permit | None = None
        self.priority = self.version = self.sent_bytes = 0
        self.caller = self.request_id = self.model = self.signature = self.code = ""
        self.target = self.denied = ""

    @property
    def peer(self) -> str:
        """The client's address in gRPC's form, such as ipv4:127.0.0.1:5000 or ipv6:%5B::1%5D:5000."""
        host, port = self.client
        address = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
        return address if host else "unix:"

    @property
    def principal(self) -> str:
        """The name that the caller's credential proves; empty where no credential is needed."""
        return self.denied if self.permit is None else self.permit.principal.name

    def record_model(self, model: ServedModel, signature: str) -> None:
        """Records the model and the signature that compute it, for its events."""
        self.model, self.version, self.signature = model.name, model.version, signature

    def check_model(self, name: str) -> None:
        """Checks that the caller may use the model that the message names, before a look-up. Raises NotAllowed."""
        if self.permit is not None:
            self.permit.check_model(name)

    def computed(self, request: InferenceRequest, response: InferenceResponse) -> InferenceResponse:
        """The response to a request of this call, noted where it is traced.

        Raises:
            BodyOverMemory, NoMemoryLeft: there is no room to write it, of a unary call.
        """
        if self.trace is not None:
            self.trace.computed(response.timing, rows_of(request.inputs), time.monotonic())
        return response


#: Answers a call whose message was read: the reply message or its bytes. Raises ServingError.
Answer = Callable[[], Awaitable[Any]]

#: Reads a message that takes long to parse, in a thread by another process. Raises also as `ReadingProcess.ask`.
InProcess = Callable[[bytes, GrpcCall, Reader], Answer]


class GrpcCalls:
    """The parts that the calls of a protocol share. `listener` gets an event for each unary call, whatever its outcome.

    Args:
        protocol: the protocol's name in events.
        timeout_ms: the longest that a call may take; the caller's deadline may be earlier.
        callers: tells callers apart; None if nothing does.
        readers: read messages that take long to parse; without them a thread does.
        memory: counts what calls hold; while it is full, every call is rejected unread.
        tracing: decides which calls are traced; None if none is.
        allowed: says which callers may make which calls; None if every caller may make all.
        access: the access log; None if there is none.
        standard: these are calls of gRPC's own services. They are no events, but for those that are rejected unread,
            and are begun and answered while memory is full.
    """

    def __init__(
        self,
        protocol: str,
        listener: Listener,
        timeout_ms: float,
        callers: CallerRule | None = None,
        *,
        readers: ReadingProcesses | None = None,
        memory: ClientMemory | None = None,
        tracing: Tracing | None = None,
        allowed: Access | None = None,
        access: AccessLog | None = None,
        standard: bool = False,
    ) -> None:
        self.protocol = protocol
        self.listener = listener
        self.timeout_s = timeout_ms / 1000
        self.callers = callers
        self.memory = memory or ClientMemory()
        self.tracing = tracing
        self.allowed = allowed
        self.access = access
        self.standard = standard
        self._readers = readers

    async def read_in_process(self, read: InProcess, content: bytes, call: GrpcCall) -> Any:
        """The answer of `read` to a message, which another process parses. Raises ServingError."""
        here = partial(read, content, call, ReadHere())
        if self._readers is None:
            go_on = await asyncio.to_thread(here)
        else:
            left_s = call.deadline_s - time.monotonic()
            go_on = await self._readers.read(partial(read, content, call), here, left_s, len(content))
        return await go_on()

    def message_of(self, stream: GrpcCall) -> GrpcCall:
        """A message of a stream as a call: with the same caller, and its own deadline and event."""
        now = time.monotonic()
        trace = None if stream.trace is None else stream.trace.again()
        call = GrpcCall(now, now + self.timeout_s, stream.path, stream.client_id, trace)
        call.priority, call.caller, call.permit = stream.priority, stream.caller, stream.permit
        call.client = stream.client
        call.code = "CANCELLED"  # until it is answered
        return call

    # --- the end of a call ---

    def failed(self, call: GrpcCall, error: Exception) -> Failure:
        """The failure that the caller is told; the call and, where access was denied, the listener are told, too."""
        if isinstance(error, ServingError) and error.denied:
            call.denied = error.caller
            self.listener(AccessDenied(error.denied, call.principal, self.protocol, call.peer, f"{GRPC} {call.path}"))
        failure = failure_of(error, call.path.rpartition("/")[2], call.client_id)
        call.code = failure.code.name
        if call.trace is not None:
            call.trace.error = failure.text
        return failure

    def finish(self, call: GrpcCall, now_s: float) -> None:
        """Sends the event. A call without a code was cancelled: the caller left or its deadline passed."""
        code = call.code or ("DEADLINE_EXCEEDED" if now_s >= call.deadline_s else "CANCELLED")
        asked = call.model, call.version, call.signature
        self.listener(RequestFinished(self.protocol, code, *asked, now_s - call.started_s))
        if self.access is None and call.trace is None:
            return
        ended = Ended(self.protocol, code, asked, call.started_s, now_s)
        if self.access is not None and self.access.wants():
            self.access.write(
                ended,
                client=call.peer,
                method=GRPC,
                path=call.path,
                size=call.sent_bytes,
                request_id=call.client_id,
                caller=call.principal,
            )
        if call.trace is not None:
            call.trace.end_rpc(call.path[1:], ended)

    def administered(self, call: GrpcCall) -> None:
        """Sends the event of a call that changes what is served."""
        request = f"{GRPC} {call.path}" + (f" {call.target}" if call.target else "")
        self.listener(Administered(call.principal, self.protocol, call.peer, request, call.code or "CANCELLED"))
