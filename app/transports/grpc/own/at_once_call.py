"""A unary call without a task: to the batcher and back by callbacks; for the batcher it is the Reply."""

from __future__ import annotations

from collections.abc import Iterable

from grpc import StatusCode

from app.codecs.at_once import TakesLong
from app.core.errors import NoMemoryLeft, ServingError
from app.core.events import RequestFinished
from app.core.interfaces import Cancellable
from app.core.reply import Answer
from app.transports.access_log import GRPC, AccessLog
from app.transports.grpc.at_once import AtOnce, CallComputation
from app.transports.grpc.calls import GrpcCall, GrpcCalls, Service
from app.transports.grpc.codes import failure_of
from app.transports.grpc.held_messages import LONG_BYTES
from app.transports.grpc.own import replies
from app.transports.grpc.own.incoming_call import IncomingCall, SharedByCalls, peer_name
from app.transports.grpc.own.messages import PREFIX, Message, Rejected
from app.transports.grpc.own.request_head import GrpcHead
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream
from app.transports.memory.reply_room import reserve_now, reserve_outputs
from app.transports.request_priority import read_priority
from app.transports.request_trace import Ended, rows_of

#: The batcher has the deadline of a request, answers then, and counts that; an engine that hangs does not (chosen).
_AFTER_BATCHER_S = 0.1


class AtOnceMethod:
    """A method that is answered at once, and what its protocol's calls share."""

    __slots__ = ("_path", "_service", "at_once", "calls", "name")

    def __init__(self, path: str, at_once: AtOnce, service: Service) -> None:
        self.name = path.rpartition("/")[2]
        self.at_once = at_once
        self.calls: GrpcCalls = service.calls
        self._path = path
        self._service = service

    def permits(self, head: GrpcHead) -> bool:
        """May a call with this head be made? If not, its handler says why. What was decided stays with the head."""
        if self.calls.allowed is None or head.permit is not None:
            return True
        try:
            head.permit = self._service.permit(self._path, head.fields)
        except ServingError:
            return False
        return True


class AtOnceCall(IncomingCall):
    """One call. Its message is whole before it begins."""

    __slots__ = (
        "_computation", "_made", "_message", "_sent_bytes", "asked", "call", "code", "counted", "handle", "method",
        "trace",
    )  # fmt: skip

    def __init__(
        self,
        application: SharedByCalls,
        connection: Http2Protocol,
        stream: Stream,
        head: GrpcHead,
        method: AtOnceMethod,
    ) -> None:
        super().__init__(application, connection, stream, head)
        self.method = method
        self.call: GrpcCall | None = None
        self.handle: Cancellable | None = None
        self.code = ""
        self.counted = False  # for its caller's rate
        self.asked: tuple[str, int, str] = ("", 0, "")  # the model, its version and signature
        self._computation: CallComputation | None = None
        self._made = 0.0  # what is reserved for its outputs, until they are there
        self._message: Message | None = None
        self._sent_bytes = 0
        tracing = method.calls.tracing
        self.trace = None if tracing is None else tracing.begin(head.parent)

    # --- what comes ---

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
            self._hold(self._reader.size if self._reader else 0)
            self.watch_time()
        elif self._message is None:
            raise Rejected(StatusCode.UNIMPLEMENTED, "No message for a method that takes one")
        else:
            message, self._message = self._message, None
            if message.compressed:
                self._hand_over(message)
            else:
                self._whole(message.content)

    def _whole(self, content: bytes) -> None:
        """The message is counted until the call is answered, and the call for its caller."""
        if self.answered:
            return
        try:
            if self.head.permit is not None:
                self.counted = True
                self.head.permit.use()
            self._reserve(len(content))
            super()._hold(len(content))
        except NoMemoryLeft as error:
            self.fail(error)
        except ServingError as error:
            self.set_exception(error)
        else:
            self.application.coalescer.add(self, content)

    def waiting_bytes(self) -> int:
        """Of a message that is whole, while its request goes on."""
        return self._message.held_bytes if self._message else 0

    def _hold(self, size: int) -> None:
        super()._hold(size + self.waiting_bytes())

    # --- to the batcher ---

    @property
    def deadline_s(self) -> float:
        """Monotonic seconds: the caller's, or the server's if that is earlier."""
        timeout_s, own_s = self.head.timeout_s, self.method.calls.timeout_s
        return self.began_s + (own_s if timeout_s is None or own_s < timeout_s else timeout_s)

    @property
    def caller(self) -> str:
        """Who sent it; empty if callers are not told apart."""
        rule = self.method.calls.callers
        if rule is None:
            return ""
        if self.head.permit is not None:
            return self.head.permit.principal.name
        return rule.caller(self.head.header, peer_name(self.connection).rpartition(":")[0])

    def begin(self, content: bytes) -> None:
        """Submits the call by itself."""
        calls = self.method.calls
        self.call = call = GrpcCall(self.began_s, self.deadline_s, caller=self.caller, permit=self.head.permit)
        if calls.peers:
            call.peer = peer_name(self.connection)
        try:
            if self.head.priority is not None:
                call.priority = read_priority(self.head.priority)
            self._computation = computation = self.method.at_once.begin(content, call)
            self._give_back()
            self._made = reserve_outputs(self.connection.memory, computation.model, computation.request)
            self.handle = computation.model.submit(computation.request, self)
        except TakesLong:
            self._hand_over(Message(0, content))
        except Exception as error:
            self.set_exception(error)
        else:
            if not self.answered:
                self.watch_time(_AFTER_BATCHER_S)

    def submitted(self, handle: Cancellable) -> None:
        """It was submitted together with others."""
        self.handle = handle
        self.watch_time(_AFTER_BATCHER_S)

    def _hand_over(self, message: Message) -> None:
        """The method's usual answer, in a task."""
        self.answered = True
        for timer in (self._timer, self._arriving):
            if timer is not None:
                timer.cancel()
        self._release_held()
        self._forget()
        self.application.answer_in_task(self, message)

    # --- the batcher's Reply ---

    def done(self) -> bool:
        return self.answered

    def set_result(self, answer: Answer, /) -> None:
        computation = self._computation
        if self.answered or computation is None:
            return
        self._give_back()
        self.note(answer, rows_of(computation.request.inputs))
        try:
            response = computation.model.response(computation.request, answer)
            self._cost += reserve_now(self.connection.memory, response.outputs)
            self.reply(computation.write(response))
        except Exception as error:
            self.set_exception(error)

    def set_exception(self, error: Exception, /) -> None:
        if not self.answered:
            if isinstance(error, ServingError) and error.denied:
                call = self.call or GrpcCall(self.began_s, self.deadline_s, permit=self.head.permit)
                self.method.calls.note_denied(error, call, peer_name(self.connection), self.head.path)
            failure = failure_of(error, self.method.name, self.head.request_id)
            self.code = failure.code.name
            if self.trace is not None:
                self.trace.error = failure.text
            self.answer_failure(failure.code, failure.text, failure.metadata)

    def note(self, answer: Answer, rows: int) -> None:
        """Its own rows are these many of the answer."""
        if self.trace is not None:
            self.trace.computed(answer.timing, rows, self.application.clock())

    def answer_failure(self, code: StatusCode, text: str, metadata: Iterable[tuple[str, str | bytes]] = ()) -> None:
        self.code = self.code or code.name
        super().answer_failure(code, text, metadata)

    def reply(self, message: bytes) -> None:
        """Ends the call with its message. Raises NoMemoryLeft."""
        connection, size = self.connection, len(message)
        self.method.calls.held.check_room(size)
        head = replies.head_with_id(self.head.request_id) if self.head.request_id else replies.HEAD
        if size < LONG_BYTES:
            connection.connection.send_whole(self.stream, head, PREFIX.pack(0, size) + message, replies.OK)
        else:
            connection.connection.send_headers(self.stream, head)
            self.send_message(message)
            connection.connection.send_headers(self.stream, replies.OK, end=True)
        self.code = "OK"
        self._sent_bytes = size
        self._over()
        self.application.flush_soon(connection)

    # --- the end ---

    def _give_back(self) -> None:
        made, self._made = self._made, 0.0
        self.connection.memory.room.give(made)

    def end(self) -> None:
        self._give_back()
        if self.handle is not None:
            self.handle.cancel()
        if self.call is not None:
            self.asked = self.call.model, self.call.version, self.call.signature
        now = self.application.clock()
        calls = self.method.calls
        code = self.code or ("DEADLINE_EXCEEDED" if now >= self.deadline_s else "CANCELLED")
        calls.listener(RequestFinished(calls.protocol, code, *self.asked, now - self.began_s))
        if calls.access is not None and calls.access.wants():
            self._log(calls.access, code, now)
        if self.trace is not None:
            self.trace.end_rpc(self.head.path[1:], Ended(calls.protocol, code, self.asked, self.began_s, now))
        self._forget()

    def _log(self, access: AccessLog, code: str, now: float) -> None:
        model, version, _ = self.asked
        access.write(
            protocol=self.method.calls.protocol,
            client=peer_name(self.connection),
            method=GRPC,
            path=self.head.path,
            status=code,
            size=self._sent_bytes,
            seconds=now - self.began_s,
            model=model,
            version=version,
            request_id=self.head.request_id,
            caller="" if self.head.permit is None else self.head.permit.principal.name,
        )

    def _forget(self) -> None:
        """Nothing keeps the message."""
        self._computation = self.handle = self._message = None
