"""POST ...:predictStream: one instance a line in, one prediction a line out, in the same order, at the same time.

    receive -> inflate -> lines -> blocks -> permitted -> window -> BlockPredictor -> in order -> send

Back-pressure runs against the arrows: if the client does not read replies, `send` waits and nothing leaves the window;
a full window stops reading. So the server holds a bounded part of a stream of any length. Only messages of the body are
received a little ahead, since nothing else shows that the client has disconnected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from app.codecs.body_format import PredictBody, no_inputs
from app.codecs.charsets import names_another
from app.codecs.errors import UnsupportedMediaType
from app.codecs.format_registry import JSON
from app.codecs.json.predict_documents import check_outputs_writable
from app.codecs.media_types import choose, media_type
from app.codecs.predict_query import apply_query
from app.core.errors import ServingError, ShuttingDown
from app.core.inference import DEFAULT_SIGNATURE
from app.core.interfaces import ServedModel
from app.protocols.streams.blocks import BlockPredictor
from app.protocols.streams.lines import Block, LineCutter
from app.protocols.streams.permitted_lines import permitted_parts
from app.protocols.streams.window import Window
from app.transports.http.asgi import Message, Receive, Send
from app.transports.http.compression import Inflater
from app.transports.http.exchange import AsgiExchange
from app.transports.http.head import RequestHead
from app.transports.http.http_api import Clock, Streamed
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.http.replies import ClientGone, HttpOptions, error_body
from app.transports.memory import body_room

MEDIA_TYPE = "application/x-ndjson"

#: The type of generated clients, which know bytes but no lines of JSON: read as lines, and a type of replies.
BYTES = "application/octet-stream"

#: Other names of JSON lines, and what clients send by default.
_ALSO_READ = (
    BYTES,
    "application/ndjson",
    "application/jsonl",
    "application/json-lines",
    *JSON.media_types,
    *JSON.also_read,
)

#: The window in largest batches (chosen): one is computed, one waits, one is read, one is sent.
_WINDOW_BATCHES = 4

#: This many messages of the body wait for room in the window; one more may be held on either side of them (chosen).
_MESSAGES_AHEAD = 1


@dataclass(slots=True)
class PredictStreams:
    """The streams of a server: options, clock and reading processes that all of them share.

    Args:
        options: `max_body_bytes` bounds a line, and all lines of a stream that are read but not answered.
        draining: set when no new work is accepted.
        readers: processes that read long lines.
    """

    options: HttpOptions
    draining: asyncio.Event
    clock: Clock = time.monotonic
    readers: ReadingProcesses | None = None

    def begin(
        self,
        exchange: AsgiExchange,
        resolve: Callable[[], ServedModel],
        timeout_s: float,
        caller: str = "",
        denied: Callable[[ServingError], None] = lambda _: None,
    ) -> PredictStream:
        """The stream of one exchange. Raises ServingError if its head says already that no line can be answered.

        Args:
            denied: called with the error that says why the caller may send no more lines.
            timeout_s: the time-out of each line, from when it enters the window.
            caller: the name of the caller; empty where callers have no names.
        """
        # 1. The head: types, encoding, query.
        head = exchange.head
        _check_media_type(head)
        encoding = (head.header(b"content-encoding") or b"").decode("latin-1")
        inflater = Inflater(encoding)
        asked = PredictBody(no_inputs)
        apply_query(head.query, asked)
        if self.draining.is_set():
            raise _shutting_down()

        # 2. The model, and whether JSON can represent its outputs.
        model = resolve()
        exchange.record_model(model)
        signature = model.signature(asked.signature_name or DEFAULT_SIGNATURE)
        exchange.record_model(model, signature.name)
        specs = signature.outputs
        check_outputs_writable({name: specs[name] for name in asked.wanted(signature) or specs})

        # 3. The parts of the stream; the window holds a few of the model's largest batches.
        largest, most_bytes = model.sizes.largest, self.options.most_bytes(body_room.JSON)
        return PredictStream(
            exchange.receive,
            inflater,
            LineCutter(largest, most_bytes),
            partial(permitted_parts, exchange.permit, denied),
            Window(_WINDOW_BATCHES * largest, most_bytes),
            BlockPredictor(resolve, asked, timeout_s, self.clock, caller, self.readers),
            self.draining,
            _reply_type(head),
        )


#: Blocks in order of the lines. The last item ends the stream: an error for the client, or None.
_TakenIn = asyncio.Queue[tuple[Block, asyncio.Task[bytes]] | ServingError | None]


@dataclass(eq=False, repr=False)
class PredictStream(Streamed):
    """A stream of lines, from the first line to the last reply."""

    receive: Receive
    inflater: Inflater
    cutter: LineCutter
    permitted_parts: Callable[[Block], AsyncGenerator[Block, None]]
    window: Window
    predictor: BlockPredictor
    draining: asyncio.Event
    reply_type: str = MEDIA_TYPE
    _received: asyncio.Queue[Message] = field(default_factory=lambda: asyncio.Queue(_MESSAGES_AHEAD))
    _taken_in: _TakenIn = field(default_factory=asyncio.Queue)

    async def stream(self, send: Send) -> None:
        """Read the body and send the reply until both end. Raises ClientGone; pending lines are then cancelled."""
        gone = False
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(self._listen())
                reading = tasks.create_task(self._read(tasks))
                ending = tasks.create_task(self._end_at_drain(reading))
                # The first `receive` may send 100 Continue, which precedes the reply.
                await asyncio.sleep(0)
                headers = [(b"content-type", self.reply_type.encode())]
                await send({"type": "http.response.start", "status": self.status, "headers": headers})
                await self._write(send)
                for each in (listening, reading, ending):
                    each.cancel()
        except* ClientGone:
            gone = True
        if gone:
            raise ClientGone
        await send({"type": "http.response.body", "body": b""})

    async def _listen(self) -> None:
        """Receives until the client disconnects. Raises ClientGone."""
        while (message := await self.receive())["type"] != "http.disconnect":
            await self._received.put(message)
        raise ClientGone

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        """Reads the whole body. The lines after a line that ends the stream are dropped."""
        end: ServingError | None = None
        try:
            await self._read_lines(tasks)
        except ServingError as error:
            end = error
        self._taken_in.put_nowait(end)
        while True:
            await self._received.get()

    async def _read_lines(self, tasks: asyncio.TaskGroup) -> None:
        """Read lines until the body ends.

        Raises:
            ServingError: a line is too long or not permitted, or the body cannot be inflated.
        """
        more = True
        while more:
            message = await self._received.get()
            for piece in self.inflater.pieces(message.get("body", b"")):
                for block in self.cutter.feed(piece):
                    await self._take_in(block, tasks)
                await asyncio.sleep(0)  # a small body may grow to very many pieces; other tasks run between
            more = message.get("more_body", False)
        self.inflater.finish()
        for block in self.cutter.finish():
            await self._take_in(block, tasks)

    async def _take_in(self, block: Block, tasks: asyncio.TaskGroup) -> None:
        async with aclosing(self.permitted_parts(block)) as parts:
            async for part in parts:
                await self.window.enter(part)
                self._taken_in.put_nowait((part, tasks.create_task(self.predictor.answer(part))))

    async def _end_at_drain(self, reading: asyncio.Task[None]) -> None:
        """Answers the lines in the window, and no more."""
        await self.draining.wait()
        reading.cancel()
        self._taken_in.put_nowait(_shutting_down())

    async def _write(self, send: Send) -> None:
        while isinstance(taken := await self._taken_in.get(), tuple):
            block, answer = taken
            await send({"type": "http.response.body", "body": await answer, "more_body": True})
            self.window.leave(block)
        if taken is not None:
            await send({"type": "http.response.body", "body": error_body(str(taken)) + b"\n", "more_body": True})


def _reply_type(head: RequestHead) -> str:
    """The type of the reply: lines of JSON, unless Accept prefers bytes."""
    return choose(head.header(b"accept") or b"*/*", (MEDIA_TYPE, BYTES)) or MEDIA_TYPE


def _check_media_type(head: RequestHead) -> None:
    """Checks that a body is JSON lines, which it is without Content-Type. Raises UnsupportedMediaType."""
    content_type = head.header(b"content-type") or b""
    kind = media_type(content_type)
    if names_another(content_type):
        raise UnsupportedMediaType(
            f"Content-Type names another charset than utf-8, which lines are in; send {MEDIA_TYPE}"
        )
    if kind and kind != MEDIA_TYPE and kind not in _ALSO_READ:
        raise UnsupportedMediaType(f"Content-Type {kind[:256]!r} is not read here; send {MEDIA_TYPE}")


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("The server is shutting down")
