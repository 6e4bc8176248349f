"""The half of a connection that sends: field lists and data, which wait for windows and for the socket (RFC 9113, 6.9).

Data wait in their stream's queue. Streams take turns, a frame each. A stream whose window is closed is parked until the
client opens it. While the connection's window is closed or the socket is full, no stream is looked at. So waiting data
cost no time, however many streams have some.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from app.transports.http2 import frames
from app.transports.http2.events import Event, Sent
from app.transports.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    LARGEST_STREAM,
    LARGEST_WINDOW,
    PING,
    ErrorCode,
)
from app.transports.http2.limits import Allowance, Http2Limits
from app.transports.http2.stream import Buffer, ResetStreams, Stream

#: We keep to the frame size that every peer takes.
_FRAME_BYTES = frames.DEFAULT_FRAME_BYTES

#: Bytes of data that are taken for the socket at a time, so that other connections have their share. Chosen.
_TAKEN = 2**18

#: A piece of this many bytes is not joined with others, which would copy it. Chosen.
_LARGE = 2**12

#: What an answered request, and a frame of data, earn of the allowance: some clients open both windows for each again,
#: and change their minds now and then. Chosen.
_ANSWER_EARNS, _FRAME_EARNS = 1, 4
_WHOLE_EARNS = _ANSWER_EARNS + _FRAME_EARNS

#: What a request counts for as long as it is open: its stream, its call and a short head. Measured by
#: tests/transports/grpc/incoming/test_memory.py: 3,300 at most.
STREAM_BYTES = 2**12

#: Bytes that the tables of a few streams take. Chosen.
_PLACES_BYTES = 2**12

#: A list begins with this once the client made its table smaller: we use none of it (RFC 7541, sections 4.2 and 6.3).
_NO_TABLE = b"\x20"

#: The opaque data of our pings.
KEEPALIVE, DRAIN = b"keepaliv", b"lastcall"


class Sending:
    """The half of a connection that sends.

    Attributes:
        streams: the streams that are open or half closed, by number.
        blocked: no data are taken: the socket is full.
        unsent: bytes of data that wait, of all streams.
        sent: bytes of data that were taken since the beginning.
        last_stream: the highest number of a stream that the client opened.
        large: the next pieces that `take` gives are large.
    """

    def __init__(self, limits: Http2Limits, clock: Callable[[], float]) -> None:
        self.streams: dict[int, Stream] = {}
        self.blocked = False
        self.unsent = self.sent = 0
        self.large = False
        self.last_stream = 0
        self._limits = limits
        self._events: list[Event] = []
        self._out: list[Buffer] = []
        self._send_window = frames.DEFAULT_WINDOW
        self._waiting: OrderedDict[int, Stream] = OrderedDict()  # have a queue, and are not parked; the next one first
        self._reset = ResetStreams()
        self._most_accepted = LARGEST_STREAM
        self._allowance = Allowance(clock)
        self._strikes = 0  # pings that came too soon
        self._table_shrank = False  # the client's table of fields, which the next list has to acknowledge

    # --- to answer ---

    def let_come(self, stream: Stream, held: int = 0, missing: int = 0) -> None:
        """Opens the stream's window to its usual size, once half of it is used.

        Args:
            held: bytes of the stream that wait to be used; so many fewer may come.
            missing: bytes of what is being read now; all of it may come.
        """
        if stream.remote_closed:
            return
        usual = self._limits.stream_window
        wanted = max(usual - held, min(missing, LARGEST_WINDOW)) - stream.receive_window
        if 2 * wanted >= usual or missing > stream.receive_window:
            stream.receive_window += wanted
            self._out.append(frames.window_update(stream.id, wanted))

    def send_headers(self, stream: Stream, block: bytes, *, end: bool = False) -> None:
        """Sends an encoded field list, behind the data that wait. Does nothing on a stream that is gone."""
        if stream.local_closed:
            return
        self._strikes = 0
        if stream.queue is not None:
            stream.trailers, stream.ends = block, end
        else:
            self._write_list(stream, block, end)
        if end:
            self._close_local(stream)

    def _write_list(self, stream: Stream, block: bytes, end: bool) -> None:
        flags = END_STREAM if end else 0
        kind = HEADERS
        if self._table_shrank:
            block, self._table_shrank = _NO_TABLE + block, False
        while len(block) > _FRAME_BYTES:
            self._out.append(frames.frame(kind, flags, stream.id, block[:_FRAME_BYTES]))
            block, kind, flags = block[_FRAME_BYTES:], CONTINUATION, 0
        self._out.append(frames.frame(kind, flags | END_HEADERS, stream.id, block))

    def send_data(self, stream: Stream, *parts: Buffer, end: bool = False) -> None:
        """Sends data, behind those that wait. Does nothing on a stream that is gone."""
        if stream.local_closed:
            return
        self._strikes = 0
        size = sum([len(part) for part in parts])

        # 1. The data wait behind those before them.
        if size:
            if stream.queue is None:
                stream.queue = deque()
                self._waiting[stream.id] = stream
            stream.queue.extend(parts)
            stream.unsent += size
            self.unsent += size
            stream.ends = end

        # 2. Only the end is to be told: at once, or behind the data that wait.
        elif end and stream.queue is None:
            self._out.append(frames.frame(DATA, END_STREAM, stream.id))
        else:
            stream.ends = end
        if end:
            self._close_local(stream)
        self._send_waiting()

    def send_whole(self, stream: Stream, head: bytes, content: bytes, trailers: bytes = b"") -> None:
        """Sends a whole answer: a field list, data, and trailers if there are any."""
        size = len(content)

        # 1. Nearly always it leaves at once.
        if size and self._goes_whole(stream, size, max(len(head), len(trailers))):
            number, pack = stream.id, HEAD.pack
            self._out += (
                pack(len(head) >> 8, len(head) & 0xFF, HEADERS, END_HEADERS, number), head,
                pack(size >> 8, size & 0xFF, DATA, 0 if trailers else END_STREAM, number), content,
            )  # fmt: skip
            if trailers:
                length = len(trailers)
                self._out += (pack(length >> 8, length & 0xFF, HEADERS, END_HEADERS | END_STREAM, number), trailers)
            return

        # 2. Else it waits for a window, or for the socket.
        self.send_headers(stream, head, end=not (size or trailers))
        if size:
            self.send_data(stream, content, end=not trailers)
        if trailers:
            self.send_headers(stream, trailers, end=True)

    def _goes_whole(self, stream: Stream, size: int, fields: int) -> bool:
        """Whether an answer leaves at once, in one frame of each kind; it then counts.

        size, fields: bytes of its data, and of the longest of its field lists.
        """
        if (
            size > _FRAME_BYTES
            or fields > _FRAME_BYTES
            or size > stream.send_window
            or size > self._send_window
            or stream.queue is not None
            or not stream.remote_closed
            or self._waiting or self.blocked or stream.local_closed or self._table_shrank
        ):  # fmt: skip
            return False
        stream.local_closed = True
        del self.streams[stream.id]
        self._send_window -= size
        self.large |= size > _LARGE
        self._allowance.earned += _WHOLE_EARNS
        self._strikes = 0
        return True

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Ends the stream at once. Does nothing if it is gone."""
        if self.streams.pop(stream.id, None) is not None:
            self._discard(stream)
            self._reset.add(stream.id)
            self._out.append(frames.rst_stream(stream.id, code))

    def ping(self, content: bytes) -> None:
        self._out.append(frames.frame(PING, 0, 0, content))

    def begin_drain(self, *, ask: bool = True) -> None:
        """Tells the client to open no more streams (section 6.8); those that it opens until it reads this are answered.

        ask: the client is to answer a ping when it has read that.
        """
        if self._most_accepted == LARGEST_STREAM:
            self._out.append(frames.goaway(LARGEST_STREAM, ErrorCode.NO_ERROR))
            if ask:
                self.ping(DRAIN)

    def end_drain(self) -> None:
        """Streams that are opened from now on are dropped, and the client knows it: it may try them elsewhere."""
        if self._most_accepted == LARGEST_STREAM:
            self._most_accepted = self.last_stream
            self._out.append(frames.goaway(self.last_stream, ErrorCode.NO_ERROR))

    def earn(self, messages: int) -> None:
        """So many whole messages have come, each perhaps in a small frame of its own."""
        self._allowance.earned += messages / 8

    @property
    def held(self) -> int:
        """Bytes of open streams and of data that wait. The table of streams does not shrink with them."""
        places = self.streams.__sizeof__() + self._waiting.__sizeof__()
        if places > _PLACES_BYTES and not self.streams:
            self.streams.clear()
            self._waiting.clear()
            places = 0
        return self.unsent + len(self.streams) * STREAM_BYTES + places

    @property
    def drained(self) -> bool:
        """Whether no more streams can be opened."""
        return self._most_accepted < LARGEST_STREAM

    def take(self) -> list[Buffer]:
        """The bytes to send. Asked again while there are more."""
        if self._waiting and not self._out:
            self._send_waiting()
        out, self._out = self._out, []
        return out

    def take_events(self) -> list[Event]:
        """The events since `receive` returned."""
        events, self._events = self._events, []
        return events

    # --- what waits ---

    def _send_waiting(self) -> None:
        waiting, most = self._waiting, _TAKEN
        while waiting and most > 0 and self._send_window > 0 and not self.blocked:
            number, stream = waiting.popitem(last=False)
            size = min(_FRAME_BYTES, stream.send_window, self._send_window, stream.unsent)
            if size <= 0:
                stream.parked = True
                continue
            most -= size
            self._write_data(stream, size)
            if stream.queue is not None:
                waiting[number] = stream

    def _window_opened(self, stream: Stream) -> None:
        """The client lets more of the stream come; raises nothing if it is too much, which the caller looks at."""
        if stream.parked and stream.send_window > 0:
            stream.parked = False
            self._waiting[stream.id] = stream

    def _write_data(self, stream: Stream, size: int) -> None:
        """Writes a frame of `size` bytes, and what follows the last one."""
        queue = stream.queue
        assert queue is not None  # noqa: S101 - it waits
        stream.unsent -= size
        stream.send_window -= size
        self._send_window -= size
        self.unsent -= size
        self.sent += size
        self.large |= size > _LARGE
        last = not stream.unsent
        ends_here = last and stream.ends and stream.trailers is None
        self._allowance.earned += _FRAME_EARNS
        self._strikes = 0  # gRPC's clients measure with pings while data come
        self._out.append(frames.head(size, DATA, END_STREAM if ends_here else 0, stream.id))
        self._out.extend(_taken(queue, size))
        if last:
            stream.queue = None
            if stream.trailers is not None:
                self._write_list(stream, stream.trailers, stream.ends)
            self._events.append(Sent(stream))
            if stream.local_closed:
                self._closed(stream)

    def _close_local(self, stream: Stream) -> None:
        stream.local_closed = True
        if stream.queue is None:
            self._closed(stream)

    def _closed(self, stream: Stream) -> None:
        """Closes a stream whose answer was sent. The rest of its request is dropped, as the client is told (8.1).

        It is not told if all of the rest may come without a wait for us: then it ends the stream itself. Some clients
        (curl 7.88) lose a whole reply to the reset behind it.
        """
        self._allowance.earned += _ANSWER_EARNS
        if self.streams.pop(stream.id, None) is not None and not stream.remote_closed:
            self._reset.add(stream.id)
            if not 0 < stream.content_left <= stream.receive_window:
                self._out.append(frames.rst_stream(stream.id, ErrorCode.NO_ERROR))

    def _discard(self, stream: Stream) -> None:
        """Drops all that waits of a stream, which is gone."""
        stream.remote_closed = stream.local_closed = True
        self.unsent -= stream.unsent
        stream.unsent = 0
        stream.queue = None
        stream.parked = False
        self._waiting.pop(stream.id, None)


def _taken(queue: deque[Buffer], size: int) -> list[Buffer]:
    """The first `size` bytes, without copying them."""
    parts: list[Buffer] = []
    while size:
        part = queue.popleft()
        if len(part) > size:
            view = memoryview(part)
            queue.appendleft(view[size:])
            part = view[:size]
        parts.append(part)
        size -= len(part)
    return parts
