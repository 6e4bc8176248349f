"""A call that a handler of gRPC answers in a task, as under grpc.aio: this is what such a handler calls its context."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, NoReturn

import grpc
from grpc import StatusCode

from app.core.errors import NoMemoryLeft, ServingError
from app.transports.grpc.own import replies
from app.transports.grpc.own.incoming_call import IncomingCall, SharedByCalls, peer_name
from app.transports.grpc.own.messages import Message, Rejected, inflate
from app.transports.grpc.own.request_head import GrpcHead, Metadata
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream
from app.transports.request_id import REQUEST_ID

logger = logging.getLogger(__name__)

#: Compressed messages of more bytes are inflated in a thread. Chosen: 4 KiB may become 4 MB, in 5 ms.
_AT_ONCE_BYTES = 4096

#: Characters of an error that is a bug. Chosen: clients limit the field to 8 KiB.
_MOST_TEXT = 1000

#: Of a task with its handler's frames. Measured by tests/transports/grpc/own/test_memory.py: 3,500 to 4,100.
_TASK_BYTES = 4608

#: Likewise of one that lasts, with the tasks of its handler. Measured there: 3,700 to 6,300, behind other tests 10,000.
_LASTING_BYTES = 11264


class HandlerCall(IncomingCall):
    """One call, and its handler's context: as much of grpc.aio.ServicerContext as handlers use."""

    __slots__ = (
        "_callbacks", "_code", "_details", "_ended", "_first", "_handler", "_held_else", "_inflated_bytes", "_messages",
        "_sending", "_task", "_trailing", "_waiter", "_waiting_bytes", "began", "counted", "streaming",
    )  # fmt: skip

    def __init__(
        self,
        application: SharedByCalls,
        connection: Http2Protocol,
        stream: Stream,
        head: GrpcHead,
        handler: grpc.RpcMethodHandler,
    ) -> None:
        super().__init__(application, connection, stream, head)
        self._handler = handler
        self.streaming = handler.request_streaming
        connection.lasting += lasts(handler)
        self.counted = False  # for its caller's rate, before it came here
        self._task: asyncio.Task[None] | None = None
        # What came and was not taken.
        self._messages: deque[Message] = deque()
        self._waiting_bytes = 0
        self._inflated_bytes = 0  # of the last one that was taken
        self._held_else = 0  # bytes, until the end
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        # The answer.
        self.began = False
        self._first: Metadata = ((REQUEST_ID.decode(), head.request_id),) if head.request_id else ()
        self._trailing: Metadata = ()
        self._code = StatusCode.OK
        self._details = ""
        self._sending: asyncio.Future[None] | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def start(self) -> None:
        """Begins to answer a stream at once, and other calls when their message is whole."""
        self.watch_time()
        if self.streaming:
            try:
                self._run()
            except NoMemoryLeft as error:
                self.fail(error)

    def _run(self) -> None:
        """Raises NoMemoryLeft."""
        self._hold_else(_LASTING_BYTES if lasts(self._handler) else _TASK_BYTES)
        self._task = asyncio.get_running_loop().create_task(self._answer(), name=self.head.path)
        self.application.tasks.add(self._task)
        self._task.add_done_callback(self.application.tasks.discard)

    def _hold_else(self, size: int) -> None:
        """Holds bytes until the end. Raises NoMemoryLeft."""
        self._held_else += size
        if not self.connection.hold(size):
            raise self._no_memory()

    # --- what comes ---

    def messages(self, messages: list[Message], ended: bool) -> None:
        self._ended = ended
        if messages:
            self._reserve(max([len(each.content) for each in messages]))
        self._messages.extend(messages)
        if messages:
            size = sum([each.held_bytes for each in messages])
            self._waiting_bytes += size
            if not self.connection.hold(size):
                raise self._no_memory()
        if self.streaming:
            self._wake()
        elif len(self._messages) > 1:
            raise Rejected(StatusCode.UNIMPLEMENTED, "More than one message for a method that takes one")
        elif ended and not self._messages:
            raise Rejected(StatusCode.UNIMPLEMENTED, "No message for a method that takes one")
        elif ended:
            self._run()

    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _next(self) -> bytes | None:
        """The next message; None after the last one. Raises Rejected."""
        self._release_inflated()
        if self.streaming:
            await self._its_turn()
        while not self._messages:
            if self._ended or self.answered:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self._messages.popleft()
        self._waiting_bytes -= message.held_bytes
        if self.streaming:
            self.connection.release(message.held_bytes)
        else:  # its handler has it until the end
            self._held_else += message.held_bytes
        if not self.stream.remote_closed:
            self.connection.connection.let_come(
                self.stream, self._waiting_bytes, self._reader.missing if self._reader else 0
            )
            self.application.flush_soon(self.connection)
        if not message.compressed:
            return message.content
        arguments = message.content, self.head.encoding, self.application.max_message_bytes
        try:
            if len(message.content) <= _AT_ONCE_BYTES:
                content = inflate(*arguments)
            else:
                content = await asyncio.to_thread(inflate, *arguments)
            self._hold_inflated(len(content))
        except (Rejected, ServingError) as error:
            self.fail(error)
            raise asyncio.CancelledError from None  # nobody waits for what the handler would say
        return content

    def _hold_inflated(self, size: int) -> None:
        """Raises NoMemoryLeft."""
        if not self.answered:
            self._reserve(size)
            self._inflated_bytes = size
            if not self.connection.hold(size):
                raise self._no_memory()

    def _release_inflated(self) -> None:
        self.connection.release(self._inflated_bytes)
        self._inflated_bytes = 0

    async def _requests(self) -> AsyncIterator[Any]:
        read = self._handler.request_deserializer
        while (content := await self._next()) is not None:
            yield content if read is None else read(content)

    # --- the answer ---

    async def _answer(self) -> None:
        try:
            await self._its_turn()
            await self._call_handler()
        except grpc.aio.AbortError:
            self._end(self._code)
        except Rejected as error:
            self._details = str(error)
            self._end(error.code)
        except asyncio.CancelledError:
            self._end(StatusCode.CANCELLED)
        except Exception as error:
            logger.exception("A bug answered %s", self.head.path)
            self._details = f"Unexpected {type(error)}: {error}"[:_MOST_TEXT]
            self._end(StatusCode.UNKNOWN)
        else:
            self._end(self._code)

    async def _its_turn(self) -> None:
        """Before a call, and before each message of a stream, since any number may have come."""
        await self.connection.turns.may_step(self.connection.share)

    async def _call_handler(self) -> None:
        handler = self._handler
        argument: Any
        if self.streaming:
            argument = self._requests()
        else:
            content = await self._next()
            argument = content if handler.request_deserializer is None else handler.request_deserializer(content)
            del content
        answer = _behaviour(handler)(argument, self)
        del argument
        if hasattr(answer, "__aiter__"):
            async for reply in answer:
                await self.write(reply)
        elif handler.response_streaming:
            await answer
        else:
            await self.write(await answer)

    def _end(self, code: StatusCode) -> None:
        if self.answered:
            return
        if code is StatusCode.OK:
            self._begin()
        self.answer_failure(code, self._details, self._trailing)

    def _begin(self) -> None:
        if not self.began:
            self.began = True
            self.connection.connection.send_headers(
                self.stream, replies.head(self._first) if self._first else replies.HEAD
            )

    def sent(self) -> None:
        if self._sending is not None and not self._sending.done():
            self._sending.set_result(None)
        if self.answered:
            self._tell_callbacks()

    def end(self) -> None:
        """Cancels the task where it did not end the call itself."""
        self.connection.lasting -= lasts(self._handler)
        self._release_inflated()
        self.connection.release(self._waiting_bytes + self._held_else)
        self._waiting_bytes = self._held_else = 0
        self._messages.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if self.stream.queue is None:
            self._tell_callbacks()

    def gone(self) -> None:
        super().gone()
        self._tell_callbacks()

    def _tell_callbacks(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for each in callbacks:
            each(self)

    # --- grpc.aio.ServicerContext ---

    #: Its connection counts messages, and replies that wait, so nobody else does.
    counts_memory = True

    async def read(self) -> Any:
        content = await self._next()
        read = self._handler.request_deserializer
        return grpc.aio.EOF if content is None else content if read is None else read(content)

    async def write(self, message: Any) -> None:
        """Returns when all of it is on its way."""
        serialize = self._handler.response_serializer
        if not self.streaming:  # many may have waited for one page
            await self._its_turn()
        content = message if serialize is None else serialize(message)
        if self.answered:
            return
        self._begin()
        self.send_message(content)
        if self.stream.queue is not None and self._handler.response_streaming:
            self._sending = asyncio.get_running_loop().create_future()
            del message, content
            await self._sending
            self._sending = None

    async def send_initial_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self._first = tuple(metadata)
        self._begin()
        self.application.flush_soon(self.connection)

    async def abort(
        self, code: StatusCode, details: str = "", trailing_metadata: Iterable[tuple[str, str | bytes]] = ()
    ) -> NoReturn:
        self._code, self._details = code, details
        self._trailing = tuple(trailing_metadata) or self._trailing
        raise grpc.aio.AbortError

    def set_trailing_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        self._trailing = tuple(metadata)

    def set_code(self, code: StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def invocation_metadata(self) -> Metadata:
        return self.head.metadata

    def peer(self) -> str:
        return peer_name(self.connection)

    def time_remaining(self) -> float | None:
        timeout_s = self.head.timeout_s
        return None if timeout_s is None else max(0.0, self.began_s + timeout_s - self.application.clock())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Called with this when the last byte is on its way, or the call is gone."""
        if self.answered and self.stream.queue is None:
            callback(self)
        else:
            self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return self.answered and self._task is not None and not self._task.done()

    def done(self) -> bool:
        return self.answered


def lasts(handler: grpc.RpcMethodHandler) -> bool:
    """Whether its call may have a task for as long as the client wants. Who takes a stream and replies once rejects."""
    return bool(handler.response_streaming)


def _behaviour(handler: grpc.RpcMethodHandler) -> Any:
    return handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
