"""The server's side of an HTTP/2 connection without its socket: bytes in, events out; calls in, bytes out (RFC 9113).

`receive` takes bytes of the socket and returns the events of their frames (frame_reader.py), in order; the methods of
`Sending` take the answers, and `take` gives the bytes for the socket. A clock is read for floods, and nothing waits.

Who may do what (section 5.1), by the fields of `Stream`:

    request comes   Request            the stream is in `streams` until both sides are closed, or it is reset
    content comes   Data               only on a stream whose `remote_closed` is false; else STREAM_CLOSED
    END_STREAM      `ended`            remote_closed
    we answer       headers, data      only while `local_closed` is false
    we end          end=True           local_closed; if the request has not ended by then, what still comes is dropped,
                                       and it is reset with NO_ERROR (8.1) unless all of it has room in its window
    either resets   Reset, `reset`     the stream is gone; what still comes for one that we reset is dropped

An error of one stream resets it and is charged, an error of the connection is told by GOAWAY, and then `failure` says
why; what is received afterwards is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from sys import maxsize
from typing import NoReturn

from app.transports.http2 import frames
from app.transports.http2.events import ConnectionFailed, Data, Event, PingAnswered, Request, Reset, StreamFailed
from app.transports.http2.frame_reader import MAX_FRAME_BYTES, FrameReader
from app.transports.http2.frames import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    LARGEST_STREAM,
    LARGEST_WINDOW,
    PADDED,
    PING,
    SETTINGS,
    ErrorCode,
)
from app.transports.http2.hpack import DEFAULT_TABLE_BYTES, Decoder, HeaderList
from app.transports.http2.huffman import CompressionError
from app.transports.http2.limits import Http2Limits
from app.transports.http2.request_fields import check_fields, read_request
from app.transports.http2.sending import Sending
from app.transports.http2.stream import Stream

#: CONTINUATION frames of one list. Chosen: a client that sends more sends nothing in them (CVE-2024-27316).
_MAX_CONTINUATIONS = 64

#: A field list that is too long costs as much as a reset for each of so many bytes of it. Chosen: 2,000 references to a
#: table of short fields, a byte each, take a millisecond, and are of 80 KB.
_LIST_BYTES_PER_RESET = 2**10

#: What DATA costs that was under way for a stream that we reset. Chosen: an upload has some 16 frames in its window.
_LATE_DATA_COST = 1 / 8

#: What DATA of fewer bytes cost that do not end their stream. Chosen: 8,000 frames a second pass for ever, and a frame
#: for each message does, since answers and whole messages earn more.
_SMALL_DATA, _SMALL_DATA_COST = 256, 1 / 16

#: Ranges of numbers that a client passed over when it opened streams. Chosen: an honest one passes over none.
_MAX_SKIPPED = 16


class SansIoConnection(Sending):
    """The state of a client's HTTP/2 connection.

    Args:
        clock: monotonic seconds.

    Attributes:
        failure: why the connection ends; empty while it does not.
        settings_came: the client's preface and settings have come.
    """

    def __init__(self, limits: Http2Limits, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(limits, clock)
        self._clock = clock
        self.failure = ""
        self.settings_came = False
        # Frames and field lists that are not whole.
        self._frames = FrameReader()
        self._block: list[bytes] = []  # of a list that goes on in CONTINUATION
        self._block_bytes = 0
        self._block_of: tuple[int, int] | None = None  # its stream, and the flags of its HEADERS
        # The receiving side.
        self._decoder = Decoder(max_list_bytes=limits.max_list_bytes)
        self._receive_window = limits.connection_window
        self._unacknowledged = 0
        self._skipped: list[range] = []
        self._first_window = frames.DEFAULT_WINDOW
        self._pinged_s = -inf
        # What the client reads first.
        told = [
            (frames.MAX_CONCURRENT_STREAMS, limits.max_streams),
            (frames.INITIAL_WINDOW_SIZE, limits.stream_window),
            (frames.MAX_HEADER_LIST_SIZE, limits.max_list_bytes),
        ]
        more = limits.connection_window - frames.DEFAULT_WINDOW
        self._out += [frames.settings(told), frames.window_update(0, more)]

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame, or a list of fields, has begun and is not whole, and nothing else is to be read."""
        return not self.more and (self._frames.unread_bytes > 0 or self._block_of is not None)

    @property
    def more(self) -> bool:
        """Whether frames have come that `receive` was not to read yet."""
        return self._frames.more

    @property
    def held(self) -> int:
        """Bytes of `Sending`, and of incomplete frames and field lists."""
        return super().held + self._frames.unread_bytes + self._block_bytes

    # --- what comes ---

    def keep(self, content: bytes) -> None:
        """Keeps bytes behind those that `receive` was not to read yet."""
        if not self.failure:
            self._frames.keep(content)

    def receive(self, content: bytes, most: int = maxsize) -> list[Event]:
        """The events of these bytes and those before them, of no more than `most` frames; then see `more`."""
        if self.failure:
            return []
        by_kind = self._BY_KIND
        try:
            for kind, flags, number, payload in self._frames.read(content, most):
                if self._block_of is not None and kind != CONTINUATION:  # section 6.10
                    raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a field list is not continued")
                try:
                    by_kind[kind if kind <= CONTINUATION else -1](self, flags, number, payload)
                except StreamFailed as failed:
                    self._fail_stream(number, failed.code)
        except ConnectionFailed as failed:
            self.fail(failed.code, str(failed))
        except CompressionError as error:  # section 4.3
            self.fail(ErrorCode.COMPRESSION_ERROR, str(error))
        if self._waiting:
            self._send_waiting()
        return self.take_events()

    # --- frames of requests ---

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        """Data of a request (section 6.1)."""
        # 1. The connection's window, in which padding counts.
        if not number:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "DATA of no stream")
        length = len(payload)
        self._count_data(length)

        # 2. Data of a stream that is gone: they are dropped if we reset it.
        stream = self.streams.get(number)
        if stream is None:
            self._not_open(number)
            self._spend(_LATE_DATA_COST if length else 1)
            return

        # 3. The stream's window, in which padding counts, too.
        if flags & PADDED:
            payload = _without_padding(payload)
        if stream.remote_closed:  # section 5.1, half closed (remote)
            raise StreamFailed(ErrorCode.STREAM_CLOSED)
        stream.receive_window -= length
        if stream.receive_window < 0:
            raise StreamFailed(ErrorCode.FLOW_CONTROL_ERROR)

        # 4. The length of the content, and its end; small frames are charged.
        ended = bool(flags & END_STREAM)
        if stream.content_left >= 0:
            self._count_content(stream, len(payload), ended)
        if ended:
            self._close_remote(stream)
        elif len(payload) < _SMALL_DATA:
            self._spend(_SMALL_DATA_COST if payload else 1)
        self._events.append(Data(stream, payload, ended))

    def _count_data(self, length: int) -> None:
        """Section 6.9.1. The connection's window only keeps its streams apart, so it opens as soon as half is used."""
        self._receive_window -= length
        if self._receive_window < 0:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window of the connection has")
        self._unacknowledged += length
        if 2 * self._unacknowledged >= self._limits.connection_window:
            self._out.append(frames.window_update(0, self._unacknowledged))
            self._receive_window += self._unacknowledged
            self._unacknowledged = 0

    def _count_content(self, stream: Stream, length: int, ended: bool) -> None:
        """Section 8.1.1: content-length is the length of all data."""
        stream.content_left -= length
        if stream.content_left < 0 or (ended and stream.content_left):
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR)

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        """The head or the trailers of a request, or their beginning (section 6.2)."""
        if not number & 1:  # section 5.1.1: ours would be even, and there are none
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "HEADERS of a stream that no client opens")
        if flags & PADDED:
            payload = _without_padding(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, "HEADERS that are too short for their priority")
            depends_on_itself = int.from_bytes(payload[:4]) & LARGEST_STREAM == number
            payload = payload[5:]
            if depends_on_itself:  # section 5.3.1 of RFC 7540; the list is read, since the table must follow
                self._reject_own_priority(payload, number, flags)
        if flags & END_HEADERS:
            self._field_list(number, flags, payload)
        else:
            self._block_of = (number, flags)
            self._block, self._block_bytes = [payload], len(payload)

    def _reject_own_priority(self, payload: bytes, number: int, flags: int) -> NoReturn:
        if not flags & END_HEADERS:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
        self._decoder.decode(payload)
        self.last_stream = max(self.last_stream, number)
        raise StreamFailed(ErrorCode.PROTOCOL_ERROR)

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        """Section 6.10. Their number and their bytes are limited, however they are cut."""
        if self._block_of is None or self._block_of[0] != number:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of no field list")
        self._block.append(payload)
        self._block_bytes += len(payload)
        if flags & END_HEADERS:
            block, (number, flags) = b"".join(self._block), self._block_of
            self._block, self._block_bytes, self._block_of = [], 0, None
            self._field_list(number, flags, block)
        elif len(self._block) > _MAX_CONTINUATIONS or self._block_bytes > self._limits.max_block_bytes:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM, "a field list that is too long")

    def _field_list(self, number: int, flags: int, block: bytes) -> None:
        """A whole field list: a new request, or the trailers of one."""
        headers = self._decoder.decode(block)
        if headers.too_long:
            self._spend(headers.size / _LIST_BYTES_PER_RESET)
        ended = bool(flags & END_STREAM)
        if number > self.last_stream:
            self._open(number, headers, ended)
            return
        stream = self.streams.get(number)
        if stream is not None:
            self._trailers(stream, headers, ended)
        elif number in self._reset:
            self._spend(1)
        else:
            if any(number in each for each in self._skipped):  # section 5.1.1
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a stream with a lower number than the one before")
            raise ConnectionFailed(ErrorCode.STREAM_CLOSED, "HEADERS of a stream that is closed")

    def _open(self, number: int, headers: HeaderList, ended: bool) -> None:
        if number > self.last_stream + 2 and len(self._skipped) < _MAX_SKIPPED:
            self._skipped.append(range(self.last_stream + 1, number))
        self.last_stream = number
        if number > self._most_accepted:  # section 6.8: after GOAWAY they are dropped; clients know that they were
            self._reset.add(number)
            return
        request = headers.request
        if request is None:
            request = headers.request = read_request(headers)
        if len(self.streams) >= self._limits.max_streams:  # section 5.1.2
            raise StreamFailed(ErrorCode.REFUSED_STREAM)
        stream = Stream(number, self._first_window, self._limits.stream_window)
        self.streams[number] = stream
        if ended:
            stream.remote_closed = True
        if request.content_length >= 0:
            stream.content_left = request.content_length
            if ended and stream.content_left:
                raise StreamFailed(ErrorCode.PROTOCOL_ERROR)
        self._events.append(Request(stream, headers, ended))

    def _trailers(self, stream: Stream, headers: HeaderList, ended: bool) -> None:
        """Trailers, which end the request (section 8.1)."""
        if stream.remote_closed:
            raise ConnectionFailed(ErrorCode.STREAM_CLOSED, "HEADERS of a stream that was ended")
        check_fields(headers.fields)
        if not ended or stream.content_left > 0:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR)
        self._close_remote(stream)
        self._events.append(Data(stream, b"", True))

    def _close_remote(self, stream: Stream) -> None:
        stream.remote_closed = True
        if stream.local_closed and stream.queue is None:
            self.streams.pop(stream.id, None)

    def _rst_stream(self, _: int, number: int, payload: bytes) -> None:
        """The client resets a stream (section 6.4)."""
        self._check_length(payload, 4)
        stream = self.streams.pop(number, None)
        if stream is None:
            self._not_idle(number)
            self._spend(1)
            return
        self._discard(stream)
        self._spend(1)
        self._events.append(Reset(stream, int.from_bytes(payload)))

    # --- frames of the connection ---

    def _priority(self, _: int, number: int, payload: bytes) -> None:
        """A priority, which says nothing any more (section 6.3)."""
        if not number:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
        self._spend(1)
        if len(payload) != 5:
            raise StreamFailed(ErrorCode.FRAME_SIZE_ERROR)
        if int.from_bytes(payload[:4]) & LARGEST_STREAM == number:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR)

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        """The client's settings, or its acknowledgement of ours (section 6.5)."""
        if number:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        if len(payload) % 6 or (flags & ACK and payload):
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong length")
        self.settings_came = True
        self._spend(1 + len(payload) // 6)
        if flags & ACK:
            return
        for name, value in frames.read_settings(payload):
            self._apply_setting(name, value)
        self._out.append(frames.frame(SETTINGS, ACK, 0))

    def _apply_setting(self, name: int, value: int) -> None:
        """A setting (section 6.5.2).

        Those that are not named here say what we never do, or need not know: we send no table, and small frames.
        """
        if name == frames.INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "the initial window is too large")
            self._change_windows(value - self._first_window)
            self._first_window = value
        elif name == frames.HEADER_TABLE_SIZE:
            self._table_shrank |= value < DEFAULT_TABLE_BYTES
        elif (name == frames.ENABLE_PUSH and value > 1) or (
            name == frames.MAX_FRAME_SIZE and not MAX_FRAME_BYTES <= value <= frames.LARGEST_FRAME_BYTES
        ):
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a setting is out of its range")

    def _change_windows(self, change: int) -> None:
        """Changes the windows of all open streams, as the client's setting changed (section 6.9.2)."""
        if not change:
            return
        self._spend(len(self.streams) / 16)
        for stream in self.streams.values():
            stream.send_window += change
            if stream.send_window > LARGEST_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window is too large")
            self._window_opened(stream)

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        """A ping, or the answer to one of ours (section 6.7)."""
        if number:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        self._check_length(payload, 8)
        if flags & ACK:
            self._spend(1)
            self._events.append(PingAnswered(payload))
            return
        now = self._clock()
        if now - self._pinged_s < self._limits.min_ping_interval_s:
            self._strikes += 1
            if 0 <= self._limits.max_ping_strikes < self._strikes:
                raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")  # gRPC's clients know the word
        self._pinged_s = now
        self._spend(1)
        self._out.append(frames.frame(PING, ACK, 0, payload))

    def _goaway(self, _: int, number: int, payload: bytes) -> None:
        """The client accepts no more streams of ours, which there never are (section 6.8)."""
        if number:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < 8:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY that is too short")
        self._spend(1)

    def _window_update(self, _: int, number: int, payload: bytes) -> None:
        """The window of a stream, or of the connection, grows (section 6.9)."""
        self._check_length(payload, 4)
        increment = int.from_bytes(payload) & LARGEST_WINDOW  # behind a reserved bit
        self._spend(1)
        if not number:  # the window of the connection
            if not increment:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a window that grows by 0")
            self._send_window += increment
            if self._send_window > LARGEST_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "the window is too large")
            return
        self._not_idle(number)
        if not increment:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR)
        stream = self.streams.get(number)
        if stream is None:
            return
        stream.send_window += increment
        if stream.send_window > LARGEST_WINDOW:
            raise StreamFailed(ErrorCode.FLOW_CONTROL_ERROR)
        self._window_opened(stream)

    def _push_promise(self, *_: object) -> None:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE of a client")  # section 8.4

    def _unknown(self, *_: object) -> None:
        """A frame of another kind, which is dropped (section 5.5)."""
        self._spend(1)

    #: By the number of the kind; the last one takes all others.
    _BY_KIND = (
        _data, _headers, _priority, _rst_stream, _settings, _push_promise, _ping, _goaway, _window_update,
        _continuation, _unknown,
    )  # fmt: skip

    # --- errors ---

    def fail(self, code: ErrorCode, text: str) -> None:
        """Ends the connection with GOAWAY; every stream is gone."""
        if not self.failure:
            self.failure = text
            last = min(self.last_stream, self._most_accepted)  # section 6.8: never a higher one than before
            self._out.append(frames.goaway(last, code, text))
            for stream in self.streams.values():
                self._discard(stream)
                self._events.append(Reset(stream, code))
            self.streams.clear()
            self._waiting.clear()
            self._frames.drop()
            self._block, self._block_bytes, self._block_of = [], 0, None

    def _fail_stream(self, number: int, code: ErrorCode) -> None:
        """A stream that the client makes us reset costs as much as one that it resets."""
        stream = self.streams.pop(number, None)
        self._out.append(frames.rst_stream(number, code))
        self._reset.add(number)
        if stream is not None:
            self._discard(stream)
            self._events.append(Reset(stream, code))
        self._spend(1)

    def _not_open(self, number: int) -> None:
        """Fails for data of a stream that is not open, unless we reset it (section 5.1)."""
        self._not_idle(number)
        if number not in self._reset:
            raise StreamFailed(ErrorCode.STREAM_CLOSED)

    def _not_idle(self, number: int) -> None:
        """Fails the connection if the stream was never opened (section 5.1, idle)."""
        if not number or number > self.last_stream or not number & 1:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a frame of a stream that was not opened")

    def _check_length(self, payload: bytes, length: int) -> None:
        if len(payload) != length:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {len(payload)} bytes; expected {length}")

    def _spend(self, cost: float) -> None:
        allowance = self._allowance
        allowance.left -= cost
        if allowance.left < 0 and not allowance.refill():
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    def __repr__(self) -> str:
        state = f"ends: {self.failure}" if self.failure else f"{len(self.streams)} streams"
        return f"<SansIoConnection {state}, {self.unsent} bytes wait>"


def _without_padding(payload: bytes) -> bytes:
    """The payload of a frame that is padded (section 6.1)."""
    if not payload or payload[0] >= len(payload):
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "padding that is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
