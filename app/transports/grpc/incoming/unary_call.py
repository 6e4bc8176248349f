"""A call of one message and one reply.

Without a task it goes to the batcher and back by callbacks; for the batcher it is the Reply. A task answers it where
its method has no other way, and where its message takes long to read, and inflates a message that is compressed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from app.codecs.at_once import TakesLong
from app.core.inference import InferenceRequest, InferenceResponse
from app.core.interfaces import Cancellable
from app.core.reply import Answer
from app.transports.grpc.codes import StatusCode
from app.transports.grpc.incoming import replies
from app.transports.grpc.incoming.incoming_call import LONG_BYTES, TASK_BYTES, IncomingCall, SharedByCalls
from app.transports.grpc.incoming.messages import PREFIX, Message, Rejected
from app.transports.grpc.request_head import GrpcHead
from app.transports.grpc.services import Method
from app.transports.grpc.taskless import CallComputation
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream
from app.transports.memory.reply_room import reserve_now, reserve_outputs

#: The batcher has the deadline of a request, answers then, and counts that; an engine that hangs does not (chosen).
_AFTER_BATCHER_S = 0.1


class UnaryCall(IncomingCall):
    """One call. Its message is whole before it begins.

    Attributes:
        begun: the call was submitted, alone or together with others.
        computation: what the batcher computes for this call alone; None before, and in a call of several.
        handle: the handle of the request that the batcher computes, for this call or for several.
    """

    __slots__ = ("_made", "_message", "begun", "computation", "handle")

    def __init__(
        self, application: SharedByCalls, connection: Http2Protocol, stream: Stream, head: GrpcHead, method: Method
    ) -> None:
        super().__init__(application, connection, stream, head, method)
        self.begun = False
        self.computation: CallComputation | None = None
        self.handle: Cancellable | None = None
        self._made = 0.0  # bytes reserved for its outputs, until they are computed
        self._message: Message | None = None

    # --- what comes ---

    def start(self) -> None:
        if self.method.taskless is None:
            self.watch_time()

    def data(self, content: bytes, ended: bool) -> None:
        if ended and self._reader is None and len(content) >= PREFIX.size:  # as nearly always: a message, and no more
            compressed, length = PREFIX.unpack_from(content)
            if not compressed and length == len(content) - PREFIX.size <= self.application.max_message_bytes:
                self._whole(content[PREFIX.size :])
                return
        super().data(content, ended)

    def messages(self, messages: list[Message], ended: bool) -> None:
        if messages and (len(messages) > 1 or self._message is not None):
            raise Rejected(StatusCode.UNIMPLEMENTED, "More than one message for a method that takes one")
        if messages:
            self._message = messages[0]
        if not ended:
            self.hold(self._reader.size if self._reader else 0)
            self.watch_time()
        elif self._message is None:
            raise Rejected(StatusCode.UNIMPLEMENTED, "No message for a method that takes one")
        else:
            message, self._message = self._message, None
            self._whole(message.content, compressed=message.compressed)

    def waiting_bytes(self) -> int:
        """The bytes that a whole message holds while its request goes on."""
        return self._message.held_bytes if self._message else 0

    def hold(self, size: int) -> None:
        super().hold(size + self.waiting_bytes())

    def _whole(self, content: bytes, *, compressed: int = 0) -> None:
        """The message is counted until the call is answered, and the call for its caller."""
        if self.answered:
            return
        try:
            if self.permit is not None:
                self.permit.use()
            if self.head.priority is not None or self.method.calls.callers is not None:
                self.identify()
            self._reserve(len(content))
            if compressed:
                self._begin_task(self._inflate, content)
            else:
                self._begin(content)
        except Exception as error:
            self.fail(error)

    def _begin(self, content: bytes) -> None:
        """Begins the method with the whole message, in a task if it needs one. Raises NoMemoryLeft."""
        if self.method.taskless is None:
            self._begin_task(self._answer, content)
        else:
            super().hold(len(content))
            self.application.coalescer.add(self, content)

    # --- in a task ---

    def _begin_task(self, work: Callable[[bytes], Awaitable[None]], content: bytes) -> None:
        """Begins a task, and holds its memory and the message's. Raises NoMemoryLeft."""
        self.hold(len(content) + TASK_BYTES)
        if self._timer is None:
            self.watch_time()
        self.run(work, content)

    async def _inflate(self, content: bytes) -> None:
        content = await self._inflated(content)
        if not self.answered:
            self._reserve(len(content))
            self._begin(content)

    async def _answer(self, content: bytes) -> None:
        reply = await self.method.answer(content, self)
        await self._its_turn()  # many calls may have waited for one page
        if not self.answered:
            self.reply(reply if isinstance(reply, bytes) else reply.SerializeToString())

    # --- to the batcher ---

    def begin(self, content: bytes) -> None:
        """Submits the call by itself."""
        self.begun = True
        taskless: Any = self.method.taskless  # not None: else the call would have a task
        try:
            try:
                self.computation = computation = taskless.begin(content, self)
            except TakesLong:
                self._begin_task(self._answer, content)
                return
            if self._made:
                self._give_back()
            if not self.memory.room.unlimited:
                self._made = reserve_outputs(self.memory, computation.model, computation.request)
            self.handle = computation.model.submit(computation.request, self)
        except Exception as error:
            self.set_exception(error)
        else:
            if not self.answered:
                self.watch_time(_AFTER_BATCHER_S)

    def submitted(self, handle: Cancellable) -> None:
        """The call was submitted together with others."""
        self.begun = True
        self.handle = handle
        self.watch_time(_AFTER_BATCHER_S)

    # --- the batcher's Reply ---

    def done(self) -> bool:
        return self.answered

    def set_result(self, answer: Answer, /) -> None:
        computation = self.computation
        if self.answered or computation is None:
            return
        self.handle = None  # there is nothing left to cancel
        if self._made:
            self._give_back()
        try:
            response = computation.model.response(computation.request, answer)
            self.reply(computation.write(self.computed(computation.request, response)))
        except Exception as error:
            self.set_exception(error)

    def set_exception(self, error: Exception, /) -> None:
        self.fail(error)

    def computed(self, request: InferenceRequest, response: InferenceResponse) -> InferenceResponse:
        super().computed(request, response)
        if not self.memory.room.unlimited:
            self.reserved += reserve_now(self.memory, response.outputs)
        return response

    def reply(self, message: bytes) -> None:
        """Ends the call with its message. Raises NoMemoryLeft."""
        connection, size = self.connection, len(message)
        self._check_room(size)
        head = replies.head(self.client_id) if self.client_id else replies.HEAD
        if size < LONG_BYTES:
            connection.connection.send_whole(self.stream, head, PREFIX.pack(0, size) + message, replies.OK)
        else:
            connection.connection.send_headers(self.stream, head)
            self.send_message(message)
            connection.connection.send_headers(self.stream, replies.OK, end=True)
        self.code = "OK"
        self.sent_bytes = size
        self._over()
        self.application.flush_soon(connection)

    # --- the end ---

    def _give_back(self) -> None:
        made, self._made = self._made, 0.0
        self.memory.room.give(made)

    def end(self) -> None:
        if self._made:
            self._give_back()
        if self.handle is not None:
            self.handle.cancel()
        super().end()
        self.computation = self.handle = self._message = None  # nothing keeps the message
