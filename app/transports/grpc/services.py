"""A gRPC service: which methods it has, what each needs of its callers, and how its messages become answers.

A method gets and gives bytes, so that a message that does not parse is the caller's error and not the server's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from google.protobuf.descriptor import Descriptor, MethodDescriptor

from app.access.access import Permit
from app.access.rules import Need, Permission
from app.codecs.at_once import TakesLong
from app.codecs.protobuf.messages import message_class, service_descriptor
from app.codecs.protobuf.wire import check_fields
from app.transports.grpc.calls import GrpcCall, GrpcCalls, InProcess
from app.transports.grpc.messages_in_process import takes_long
from app.transports.grpc.request_head import GrpcHead
from app.transports.grpc.taskless import Taskless

#: Turns a request message into the reply message or its bytes. Raises ServingError.
Unary = Callable[[Any, GrpcCall], Awaitable[Any]]

#: Turns requests into replies, as messages or bytes. Its first argument is the message of a method that takes one, or
#: the messages of a stream: it sends the event of each itself. A message that does not parse ends the stream; one that
#: takes long to parse comes as its bytes, for `read_in_process`. Closed, it no longer reads the requests.
Stream = Callable[[Any, GrpcCall], AsyncGenerator[Any, None]]

_Parse = Callable[[bytes], Any]


@dataclass(slots=True, eq=False, repr=False)
class Method:
    """One method of a service.

    Attributes:
        need: what its callers need.
        streaming: its requests are a stream; lasting: its replies are, so that a call may last as long as it wants.
        answer: makes the reply (a message or its bytes) of a message's bytes, or replies of bytes of many.
        taskless: how its calls are answered without a task each; None if they never are.
        counts: each call is an event; of a stream its messages are, each, and not the call.
        administers: its calls change what is served, and are written to the audit log.
    """

    path: str
    calls: GrpcCalls
    need: Need
    streaming: bool
    lasting: bool
    answer: Callable[[Any, GrpcCall], Any]
    taskless: Taskless | None = None
    administers: bool = False
    counts: bool = field(init=False)

    def __post_init__(self) -> None:
        self.counts = not (self.calls.standard or self.lasting)

    def admit(self, head: GrpcHead) -> Permit | None:
        """The permit of a call with this head, kept with the head; None where no credential is needed.

        Raises:
            NoMemoryLeft: the memory for clients is full.
            Unauthenticated, NotAllowed, IssuerUnknown.
        """
        calls = self.calls
        if calls.memory.full and not calls.standard:
            raise calls.memory.rejection()
        if calls.allowed is None or self.need.permission is None:
            return None
        if head.permit is None:
            head.permit = calls.allowed.permit(head.fields, self.need)
        else:
            head.permit.renew()
        return head.permit


class Service:
    """The service of that full name. A method that is not named here is UNIMPLEMENTED.

    Args:
        answers: by name, how each method answers a message that was parsed here.
        in_process: by name, how messages that take long to parse are answered; other methods parse all of them here.
        taskless: by name, how calls are answered that need no task; `answers` and `in_process` have what it leaves.
        permissions: what each method needs, None if every caller may call it; a method that is missing needs
            administration.

    Attributes:
        methods: the methods by path.
    """

    def __init__(
        self,
        calls: GrpcCalls,
        name: str,
        answers: Mapping[str, Unary | Stream],
        in_process: Mapping[str, InProcess] = MappingProxyType({}),
        taskless: Mapping[str, Taskless] = MappingProxyType({}),
        *,
        permissions: Mapping[str, Permission | None] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.calls = calls
        self.methods: dict[str, Method] = {}
        for each, descriptor in service_descriptor(name).methods_by_name.items():
            if each in answers or each in taskless:
                path = f"/{name}/{each}"
                self.methods[path] = Method(
                    path,
                    calls,
                    Need(permissions.get(each, Permission.ADMINISTRATION)),
                    descriptor.client_streaming,
                    descriptor.server_streaming,
                    _answer(calls, descriptor, answers.get(each), in_process.get(each)),
                    taskless.get(each),
                    permissions.get(each) is Permission.ADMINISTRATION,
                )

    def leave_out(self, paths: Collection[str]) -> None:
        """These methods are UNIMPLEMENTED from now on."""
        for path in self.methods.keys() & paths:
            del self.methods[path]


def parse_message(kind: Any, content: bytes) -> Any:
    """The message of type `kind` in `content`. Raises DecodeError; InvalidRequest if `check_fields` rejects it."""
    check_fields(content)
    return kind.FromString(content)


def _answer(calls: GrpcCalls, method: MethodDescriptor, answer: Any, in_process: InProcess | None) -> Any:
    """The `Method.answer` of a method, which parses the messages that `answer` gets."""
    kind = method.input_type
    parse = partial(parse_message, message_class(kind.full_name))
    if method.client_streaming:
        return partial(_answer_stream, partial(_parse_short, kind, parse), answer)
    if in_process is not None:
        return partial(_answer_here_or_in_process, calls, kind, parse, answer, in_process)
    return partial(_answer_here, parse, answer)


def _answer_here(parse: _Parse, answer: Any, content: bytes, call: GrpcCall) -> Any:
    return answer(parse(content), call)


async def _answer_here_or_in_process(  # noqa: PLR0917 - the first ones are bound
    calls: GrpcCalls,
    kind: Descriptor,
    parse: _Parse,
    answer: Unary | None,
    in_process: InProcess,
    content: bytes,
    call: GrpcCall,
) -> Any:
    if answer is not None and not takes_long(content, kind):
        with suppress(TakesLong):
            return await answer(parse(content), call)
    return await calls.read_in_process(in_process, content, call)


async def _answer_stream(
    parse: _Parse, answer: Stream, contents: AsyncIterator[bytes], call: GrpcCall
) -> AsyncGenerator[Any, None]:
    # `replies`, which reads `messages`, is closed first: the caller may leave while the next message is awaited, and
    # Python closes no generator that runs.
    async with aclosing(_parsed(contents, parse)) as messages, aclosing(answer(messages, call)) as replies:
        async for reply in replies:
            yield reply


async def _parsed(contents: AsyncIterator[bytes], parse: _Parse) -> AsyncGenerator[Any, None]:
    received: Any = aiter(contents)  # it keeps the last message until it is closed
    async with aclosing(received):
        async for content in received:
            yield parse(content)


def _parse_short(kind: Descriptor, parse: _Parse, content: bytes) -> Any:
    """The message, or the bytes if parsing them takes long. Raises as `parse_message`."""
    return content if takes_long(content, kind) else parse(content)
