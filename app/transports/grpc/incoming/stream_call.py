"""A call whose replies are a stream, as its requests may be: it has a task for as long as it lasts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing

from app.core.errors import ServingError
from app.transports.grpc.codes import StatusCode
from app.transports.grpc.incoming import replies
from app.transports.grpc.incoming.incoming_call import IncomingCall, SharedByCalls
from app.transports.grpc.incoming.messages import Message, Rejected
from app.transports.grpc.request_head import GrpcHead
from app.transports.grpc.services import Method
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream

#: Bytes of memory of the call's task, and of its method's objects. Measured by
#: tests/transports/grpc/incoming/test_memory.py: 3,700 to 6,300, behind other tests 10,000.
_LASTING_BYTES = 11264


class StreamCall(IncomingCall):
    """A call with a stream of replies. Its task begins with the first frame, or with the message if it takes one."""

    __slots__ = (
        "_ended", "_held_until_end", "_inflated_bytes", "_messages", "_sending", "_waiter", "_waiting_bytes", "began",
        "streaming",
    )  # fmt: skip

    def __init__(
        self, application: SharedByCalls, connection: Http2Protocol, stream: Stream, head: GrpcHead, method: Method
    ) -> None:
        super().__init__(application, connection, stream, head, method)
        self.streaming = method.streaming
        connection.lasting += 1
        # Messages that came and that the method has not taken.
        self._messages: deque[Message] = deque()
        self._waiting_bytes = 0
        self._inflated_bytes = 0  # of the last message that was taken
        self._held_until_end = 0  # bytes
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        # The answer.
        self.began = False
        self._sending: asyncio.Future[None] | None = None

    def start(self) -> None:
        self.watch_time()
        try:
            self.identify()
            if self.streaming:
                self._begin_task()
        except ServingError as error:
            self.fail(error)

    def _begin_task(self) -> None:
        """Begins the task of the call, which holds memory until its end. Raises NoMemoryLeft."""
        self._hold_until_end(_LASTING_BYTES)
        self.run(self._answer)

    def _hold_until_end(self, size: int) -> None:
        """Holds so many bytes more until the call ends. Raises NoMemoryLeft."""
        self._held_until_end += size
        if not self.connection.hold(size):
            raise self.memory.rejection()

    # --- what comes ---

    def messages(self, messages: list[Message], ended: bool) -> None:
        self._ended = ended
        if messages:
            self._reserve(max([len(each.content) for each in messages]))
            self._messages.extend(messages)
            size = sum([each.held_bytes for each in messages])
            self._waiting_bytes += size
            if not self.connection.hold(size):
                raise self.memory.rejection()
        if self.streaming:
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
        elif len(self._messages) > 1:
            raise Rejected(StatusCode.UNIMPLEMENTED, "More than one message for a method that takes one")
        elif ended and not self._messages:
            raise Rejected(StatusCode.UNIMPLEMENTED, "No message for a method that takes one")
        elif ended:
            self._begin_task()

    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    async def _next(self) -> bytes | None:
        """The next message; None after the last one. Raises Rejected, ServingError."""
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
        else:  # its method has it until the end
            self._held_until_end += message.held_bytes
        if not self.stream.remote_closed:
            missing = self._reader.missing if self._reader else 0
            self.connection.connection.let_come(self.stream, self._waiting_bytes, missing)
            self.application.flush_soon(self.connection)
        return await self._inflate(message.content) if message.compressed else message.content

    async def _inflate(self, content: bytes) -> bytes:
        try:
            content = await self._inflated(content)
            if not self.answered:
                self._reserve(len(content))
                self._inflated_bytes = len(content)
                if not self.connection.hold(len(content)):
                    raise self.memory.rejection()
        except (Rejected, ServingError) as error:
            self.fail(error)
            raise asyncio.CancelledError from None  # the call has ended: the method's reply is not needed
        return content

    def _release_inflated(self) -> None:
        self.connection.release(self._inflated_bytes)
        self._inflated_bytes = 0

    async def _requests(self) -> AsyncIterator[bytes]:
        while (content := await self._next()) is not None:
            yield content

    # --- the answer ---

    async def _answer(self) -> None:
        requests = self._requests() if self.streaming else await self._next()
        async with aclosing(self.method.answer(requests, self)) as answers:
            async for reply in answers:
                await self._send(reply if isinstance(reply, bytes) else reply.SerializeToString())
        if not self.answered:
            self._begin_answer()
            self.end_with(StatusCode.OK, "")

    async def _send(self, content: bytes) -> None:
        """Returns when all of it is on its way. Raises NoMemoryLeft."""
        if not self.streaming:
            await self._its_turn()
        if self.answered:
            return
        self._check_room(len(content))
        self._begin_answer()
        self.send_message(content)
        if self.stream.queue is not None:
            self._sending = asyncio.get_running_loop().create_future()
            del content
            await self._sending
            self._sending = None

    def _begin_answer(self) -> None:
        if not self.began:
            self.began = True
            self.connection.connection.send_headers(self.stream, replies.head(self.client_id))

    def sent(self) -> None:
        if self._sending is not None and not self._sending.done():
            self._sending.set_result(None)

    def end(self) -> None:
        self.connection.lasting -= 1
        self._release_inflated()
        self.connection.release(self._waiting_bytes + self._held_until_end)
        self._waiting_bytes = self._held_until_end = 0
        self._messages.clear()
        super().end()
