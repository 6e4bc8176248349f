"""What every gRPC protocol shares: messages from bytes and back, deadlines, errors, and events.

gRPC itself only carries bytes, so that a message that does not parse is the caller's error and not the server's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import Descriptor, MethodDescriptor

from app.access.access import Access, Permit
from app.access.rules import Need, Permission
from app.codecs.at_once import TakesLong
from app.codecs.protobuf.messages import message_class, service_descriptor
from app.codecs.protobuf.wire import check_fields
from app.core.errors import ServingError
from app.core.events import AccessDenied, Administered, Listener, RequestFinished
from app.core.inference import InferenceRequest, InferenceResponse
from app.transports.access_log import GRPC, AccessLog
from app.transports.grpc.at_once import AtOnce
from app.transports.grpc.codes import Failure, failure_of
from app.transports.grpc.held_messages import HeldMessages
from app.transports.grpc.messages_apart import takes_long
from app.transports.http.long_bodies.reading_process import Reader, ReadHere
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.memory.client_memory import ClientMemory
from app.transports.memory.reply_room import reserve_now
from app.transports.request_caller import CallerRule
from app.transports.request_id import id_in
from app.transports.request_priority import PRIORITY_HEADER, read_priority
from app.transports.request_trace import Ended, RequestTrace, Tracing, rows_of
from app.transports.trace_context import ParentSpan, parent_span

_ADMINISTRATION = Permission.ADMINISTRATION
_PRIORITY = PRIORITY_HEADER.decode()


@dataclass(slots=True, eq=False)
class GrpcCall:
    """One call until its reply, and what its event will say.

    Attributes:
        deadline_s: monotonic seconds; the caller's deadline, or the server's if that is earlier.
        priority: as in the metadata; 0 without one.
        caller: who sent it; empty if callers are not told apart.
        permit: what its credential lets it do; None where none is needed.
        code: the name of the status code; empty while the call has not ended.
        peer: gRPC's name of who sent it, such as ipv4:127.0.0.1:5000; empty if nothing here asks for it.
        request_id: of a request in a stream, which its error goes back with.
        client_id: the client's x-request-id; empty without one, or if nothing here asks for it.
        path: of the method, /package.Service/Method; empty if nothing here asks for it.
        sent_bytes: of the reply; 0 if they are not known.
        trace: None unless it is traced.
        target: what it changes of what is served, for the audit log.
        denied: the name of the caller that may not make it, as far as that is known.
        memory: of which room for its reply is reserved; None in a stream, where each message has a call of its own.
        reserved: bytes of it.
    """

    started_s: float
    deadline_s: float
    priority: int = 0
    code: str = ""
    model: str = ""
    version: int = 0
    signature: str = ""
    caller: str = ""
    peer: str = ""
    request_id: str = ""
    client_id: bytes = b""
    path: str = ""
    sent_bytes: int = 0
    trace: RequestTrace | None = None
    permit: Permit | None = None
    target: str = ""
    denied: str = ""
    memory: ClientMemory | None = None
    reserved: float = 0.0

    @property
    def principal(self) -> str:
        """The name of the caller, who has proven it; empty where nobody has to."""
        return self.denied if self.permit is None else self.permit.principal.name

    def check_model(self, name: str) -> None:
        """To be called before a model that the message names is looked up. Raises NotAllowed."""
        if self.permit is not None:
            self.permit.check_model(name)

    def computed(self, request: InferenceRequest, response: InferenceResponse) -> InferenceResponse:
        """The response to a request of this call, noted where it is traced; there is room to write it.

        Raises:
            BodyOverMemory, NoMemoryLeft: there is none.
        """
        if self.trace is not None:
            self.trace.computed(response.timing, rows_of(request.inputs), time.monotonic())
        if self.memory is not None:
            self.reserved += reserve_now(self.memory, response.outputs)
        return response


#: Turns a request message into the reply message or its bytes. Raises ServingError.
Unary = Callable[[Any, GrpcCall], Awaitable[Any]]

#: Answers a call whose message was read: the reply message or its bytes. Raises ServingError.
Answer = Callable[[], Awaitable[Any]]

#: Reads a message that takes long to parse, in a thread by another process. Raises also as `ReadingProcess.ask`.
Apart = Callable[[bytes, GrpcCall, Reader], Answer]

#: As Unary for a stream of requests; it sends the event of each itself. A message that does not parse ends the stream;
#: one that takes long to parse comes as its bytes, for `answer_apart`. Closed, it no longer reads the requests.
Stream = Callable[[AsyncIterator[Any], GrpcCall], AsyncGenerator[Any, None]]

#: Makes gRPC's handler of a method, for calls whose metadata name this priority (None for none), and with this permit.
_MakeHandler = Callable[[str | None, Permit | None], grpc.RpcMethodHandler]


class Service(grpc.ServiceRpcHandler):  # type: ignore[misc]  # grpc has no types
    """The methods of a service, by path; while memory is full, all are answered with that error, unread.

    So are calls whose credential does not let them be made, where one is needed.

    `at_once`: of some methods, by path, how they are answered without a task; `permissions`: what each method needs.

    The priority is read here: gRPC has the metadata when it looks for the method, and reading them from the call would
    cost as much again.
    """

    def __init__(
        self,
        name: str,
        methods: Mapping[str, _MakeHandler],
        calls: GrpcCalls,
        at_once: Mapping[str, AtOnce],
        permissions: Mapping[str, Permission | None],
    ) -> None:
        self.calls = calls
        self.at_once = {f"/{name}/{method}": each for method, each in at_once.items()}
        self._held = calls.held
        self.methods = {f"/{name}/{method}": make for method, make in methods.items()}
        self.needs = {f"/{name}/{method}": Need(permissions[method]) for method in methods}
        self._usual = {path: make(None, None) for path, make in self.methods.items()}
        self._name = name

    def leave_out(self, paths: Collection[str]) -> None:
        """These methods are UNIMPLEMENTED from now on."""
        for path in self.methods.keys() & paths:
            del self.methods[path], self._usual[path]
            self.at_once.pop(path, None)

    def service_name(self) -> str:
        return self._name

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        path = handler_call_details.method
        usual = self._usual.get(path)
        if usual is None:
            return None
        if self._held.full:
            return self.calls.rejecting(path, self._held.rejection())
        metadata = handler_call_details.invocation_metadata
        permit = None
        if self.calls.allowed is not None:
            try:
                permit = self.permit(path, fields_of(metadata))
            except ServingError as error:
                return self.calls.rejecting(path, error)
        priority = next((value for key, value in metadata if key == _PRIORITY), None)
        return usual if permit is None and priority is None else self.methods[path](priority, permit)

    def permit(self, path: str, fields: Iterable[tuple[bytes, bytes]]) -> Permit | None:
        """What a call with these metadata may do; None where everybody may make it.

        Raises:
            Unauthenticated, NotAllowed, IssuerUnknown.
        """
        access, need = self.calls.allowed, self.needs[path]
        return None if access is None or need.permission is None else access.permit(fields, need)


class GrpcCalls:
    """Makes gRPC handlers of plain functions. `listener` gets one event for each unary call, whatever its outcome.

    Args:
        protocol: its name in events.
        timeout_ms: the longest that a call may take; the caller's deadline may be earlier.
        callers: tells callers apart; None if nothing does.
        peers: calls have a `peer`.
        readers: read messages that take long to parse; without them a thread does.
        held: counts long messages and replies; while it is full, every call is rejected unread.
        tracing: decides which calls are traced; None if none is.
        allowed: says who may make which call; None if everybody may make all.

    Attributes:
        access: the access log; None if there is none.
    """

    def __init__(
        self,
        protocol: str,
        listener: Listener,
        timeout_ms: float,
        callers: CallerRule | None = None,
        *,
        peers: bool = False,
        readers: ReadingProcesses | None = None,
        held: HeldMessages | None = None,
        tracing: Tracing | None = None,
        allowed: Access | None = None,
    ) -> None:
        self.allowed = allowed
        self._administration: set[str] = set()  # paths of methods
        self.held = held or HeldMessages()
        self.tracing = tracing
        self._readers = readers
        self.access: AccessLog | None = None
        self.peers = peers
        self.callers = callers
        self.protocol = protocol
        self.listener = listener
        self.timeout_s = timeout_ms / 1000

    def service(
        self,
        name: str,
        answers: Mapping[str, Unary | Stream],
        apart: Mapping[str, Apart] = MappingProxyType({}),
        at_once: Mapping[str, AtOnce] = MappingProxyType({}),
        *,
        permissions: Mapping[str, Permission | None] = MappingProxyType({}),
    ) -> Service:
        """The service of that full name. A method that is not in `answers` is UNIMPLEMENTED.

        Args:
            apart: for methods whose messages may take long to parse.
            at_once: for methods whose calls need no task, where the engine can do without.
            permissions: what each of `answers` needs, None if everybody may call it; administration if it is not there.
        """
        methods = service_descriptor(name).methods_by_name
        needs = {each: permissions.get(each, _ADMINISTRATION) for each in answers}
        self._administration |= {f"/{name}/{each}" for each in answers if permissions.get(each) is _ADMINISTRATION}
        return Service(
            name,
            {each: partial(self._handler, methods[each], answer, apart.get(each)) for each, answer in answers.items()},
            self,
            at_once,
            needs,
        )

    def _handler(
        self, method: MethodDescriptor, answer: Any, apart: Apart | None, priority: str | None, permit: Permit | None
    ) -> grpc.RpcMethodHandler:
        parse = partial(parse_message, message_class(method.input_type.full_name))
        path = f"/{method.containing_service.full_name}/{method.name}"
        if method.client_streaming:
            parse_short = partial(_parse_short, method.input_type, parse)
            return grpc.stream_stream_rpc_method_handler(self._stream(path, parse_short, answer, priority, permit))
        if apart is not None:
            answer = partial(self._answer, method.input_type, parse, answer, apart)
        else:
            answer = partial(_answer_here, parse, answer)
        return grpc.unary_unary_rpc_method_handler(self._unary(path, answer, priority, permit))

    def _unary(
        self,
        path: str,
        answer: Callable[[bytes, GrpcCall], Awaitable[Any]],
        priority: str | None,
        permit: Permit | None,
    ) -> Any:
        async def handle(content: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            call = self._begin(context, path, permit)
            call.memory = self.held.memory
            try:
                if permit is not None and not getattr(context, "counted", False):
                    permit.use()
                held = self.held.take_message(context, len(content))
                try:
                    if priority is not None:
                        call.priority = read_priority(priority)
                    reply = await answer(content, call)
                    content = reply if isinstance(reply, bytes) else reply.SerializeToString()
                finally:
                    self.held.give_message(held)
                if reply_held := self.held.take_reply(context, len(content)):
                    context.add_done_callback(reply_held.end)
                call.code, call.sent_bytes = "OK", len(content)
                return content
            except Exception as error:
                self.note_denied(error, call, context.peer(), path)
                failure = failure_of(error, path.rpartition("/")[2], client_id_of(context))
                call.code = failure.code.name
                if call.trace is not None:
                    call.trace.error = failure.text
            finally:
                self.held.memory.room.give(call.reserved)
                self.finish(call)
                if path in self._administration:
                    self._tell(call, context.peer())
            end = _abort(context, failure)
            del content, context  # gRPC keeps the error of an abort, whose traceback keeps this frame
            return await end

        return handle

    async def _answer(  # noqa: PLR0917 - the first ones are bound
        self,
        kind: Descriptor,
        parse: Callable[[bytes], Any],
        answer: Unary,
        apart: Apart,
        content: bytes,
        call: GrpcCall,
    ) -> Any:
        if not takes_long(content, kind):
            with suppress(TakesLong):
                return await answer(parse(content), call)
        return await self.answer_apart(apart, content, call)

    async def answer_apart(self, apart: Apart, content: bytes, call: GrpcCall) -> Any:
        """What `apart` answers to a message; another process reads it. Raises ServingError."""
        here = partial(apart, content, call, ReadHere())
        if self._readers is None:
            go_on = await asyncio.to_thread(here)
        else:
            left_s = call.deadline_s - time.monotonic()
            go_on = await self._readers.read(partial(apart, content, call), here, left_s, len(content))
        return await go_on()

    def _stream(
        self, path: str, parse: Callable[[bytes], Any], answer: Stream, priority: str | None, permit: Permit | None
    ) -> Any:
        async def handle(
            contents: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[bytes]:
            call = self._begin(context, path, permit)
            if permit is not None:
                call.peer = context.peer()  # the audit log tells of messages that are denied
            try:
                if priority is not None:
                    call.priority = read_priority(priority)
                async with aclosing(_parsed(contents, parse)) as messages, aclosing(answer(messages, call)) as replies:
                    async for reply in replies:
                        content = reply.SerializeToString()
                        held = self.held.take_reply(context, len(content))
                        try:
                            yield content  # goes on when it was sent
                        finally:
                            if held:
                                held.end()
                return
            except Exception as error:
                self.note_denied(error, call, context.peer(), path)
                failure = failure_of(error, path.rpartition("/")[2], client_id_of(context))
            end = _abort(context, failure)
            del contents, context  # as above
            await end

        return handle

    def rejecting(self, path: str, error: ServingError) -> grpc.RpcMethodHandler:
        """Reads no message, so it is of the kind that gets a stream of them, which no client can tell."""

        async def handle(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            call = self._begin(context, path if error.denied else "", None)
            self.note_denied(error, call, context.peer(), path)
            failure = failure_of(error, path.rpartition("/")[2])
            call.code = failure.code.name
            self.finish(call)
            return await _abort(context, failure)

        return grpc.stream_unary_rpc_method_handler(handle)

    def note_denied(self, error: Exception, call: GrpcCall, peer: str, path: str) -> None:
        """Sends the event if access was denied. `peer`: gRPC's name of who called."""
        if isinstance(error, ServingError) and error.denied:
            call.denied = error.caller
            self.tell_denied(error, call.principal, peer, path)

    def tell_denied(self, error: ServingError, principal: str, peer: str, path: str) -> None:
        """Sends the event of an error by which access was denied to this caller."""
        if error.denied:
            self.listener(AccessDenied(error.denied, principal, self.protocol, peer, f"{GRPC} {path}"))

    def _tell(self, call: GrpcCall, peer: str) -> None:
        """Of a call that changes what is served."""
        request = f"{GRPC} {call.path}" + (f" {call.target}" if call.target else "")
        self.listener(Administered(call.principal, self.protocol, peer, request, call.code or "CANCELLED"))

    def _begin(self, context: grpc.aio.ServicerContext[bytes, bytes], path: str, permit: Permit | None) -> GrpcCall:
        started_s = time.monotonic()
        remaining_s = context.time_remaining()
        timeout_s = self.timeout_s if remaining_s is None else min(remaining_s, self.timeout_s)
        call = GrpcCall(started_s, started_s + timeout_s, path=path, permit=permit)
        if self.tracing is not None:
            call.trace = self.tracing.begin(_parent(context.invocation_metadata() or ()))
        if self.callers is not None:
            call.caller = _caller(self.callers, context) if permit is None else permit.principal.name
        if self.peers or self.access is not None:
            call.peer = context.peer()
        if self.access is not None:
            call.client_id = client_id_of(context)
        return call

    def finish(self, call: GrpcCall) -> None:
        """Sends the event. A call without a code was cancelled by gRPC: the caller left or its deadline passed."""
        now = time.monotonic()
        code = call.code or ("DEADLINE_EXCEEDED" if now >= call.deadline_s else "CANCELLED")
        self.listener(
            RequestFinished(self.protocol, code, call.model, call.version, call.signature, now - call.started_s)
        )
        if self.access is not None and self.access.wants():
            self.access.write(
                protocol=self.protocol,
                client=call.peer,
                method=GRPC,
                path=call.path,
                status=code,
                size=call.sent_bytes,
                seconds=now - call.started_s,
                model=call.model,
                version=call.version,
                request_id=call.client_id,
                caller=call.principal,
            )
        if call.trace is not None and call.path:
            asked = call.model, call.version, call.signature
            call.trace.end_rpc(call.path[1:], Ended(self.protocol, code, asked, call.started_s, now))


def fields_of(metadata: Iterable[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    """Metadata as fields, without those of bytes."""
    return [(name.encode(), value.encode()) for name, value in metadata if isinstance(value, str)]


def _parent(metadata: Iterable[tuple[str, str | bytes]]) -> ParentSpan | None:
    return parent_span(fields_of(metadata))


def _caller(rule: CallerRule, context: grpc.aio.ServicerContext[bytes, bytes]) -> str:
    metadata = dict(reversed(context.invocation_metadata() or ()))

    def header(name: bytes) -> bytes | None:
        value = metadata.get(name.decode())
        return value.encode() if isinstance(value, str) else value

    return rule.caller(header, context.peer().rpartition(":")[0])


def client_id_of(context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    """The client's id of its request; empty without one."""
    return id_in(
        (name.encode(), value.encode() if isinstance(value, str) else value)
        for name, value in context.invocation_metadata() or ()
    )


def _answer_here(parse: Callable[[bytes], Any], answer: Unary, content: bytes, call: GrpcCall) -> Awaitable[Any]:
    return answer(parse(content), call)


def parse_message(kind: Any, content: bytes) -> Any:
    """Raises DecodeError; InvalidRequest if it has very many fields."""
    check_fields(content)
    return kind.FromString(content)


def _parse_short(kind: Descriptor, parse: Callable[[bytes], Any], content: bytes) -> Any:
    """The message, or the bytes if parsing them takes long. Raises as `parse_message`."""
    return content if takes_long(content, kind) else parse(content)


async def _parsed(contents: AsyncIterator[bytes], parse: Callable[[bytes], Any]) -> AsyncGenerator[Any, None]:
    received: Any = aiter(contents)  # gRPC's generator, which keeps the last message until it is closed
    async with aclosing(received):
        async for content in received:
            yield parse(content)


async def _abort(context: grpc.aio.ServicerContext[bytes, bytes], failure: Failure) -> NoReturn:
    """Ends the call by raising gRPC's own exception. The context keeps it, so no frame of it keeps the context."""
    end = context.abort(failure.code, failure.text, failure.metadata)
    del context
    await end
    raise AssertionError("abort raises")
