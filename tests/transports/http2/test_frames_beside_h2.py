"""Random streams of frames, some of them forbidden: the library h2 reads the same of them, up to what it rejects.

`pytest --hypothesis-profile=frames tests/transports/http2/test_frames_beside_h2.py` tries 10^5 of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.transports.http2 import frames
from app.transports.http2.events import Data, Event, PingAnswered, Request, Reset
from app.transports.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    frame,
    window_update,
)
from app.transports.http2.hpack import encode_fields
from app.transports.http2.limits import Http2Limits
from app.transports.http2.sans_io_connection import SansIoConnection

REQUEST = encode_fields(
    [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/B"), (b":authority", b"x"), (b"te", b"trailers")]
)
INDEXED = REQUEST + b"\x40\x01x\x03abc"  # enters the table
BLOCKS = st.sampled_from([REQUEST, INDEXED, REQUEST + b"\xbe", REQUEST + b"\x00\x01A\x01b", REQUEST[:3], b"\x80"])
TRAILERS = st.sampled_from([b"\x00\x01t\x011", b"\xbe", REQUEST])

PINGED = st.sampled_from([bytes(8), b"7"])
NUMBERS = st.sampled_from([1, 1, 3, 3, 5, 7, 0, 2])
WORDS = st.sampled_from([0, 1, 100, 2**16, 2**31 - 1])


def heads(number: int, block: bytes, flags: int, cut: int) -> bytes:
    """Padding or priority where the flags say so; cut below 20: the rest goes on in CONTINUATION."""
    if flags & PADDED:
        cut = max(cut, 3)  # h2 rejects padding that is longer than what it pads
    first, rest = block[:cut], block[cut:]
    if flags & HAS_PRIORITY:
        first = b"\0\0\0\x09\1" + first
    if flags & PADDED:
        first = b"\2" + first + b"\0\0"
    if cut >= 20:
        return frame(HEADERS, flags | END_HEADERS, number, first + rest)
    return frame(HEADERS, flags, number, first) + frame(CONTINUATION, END_HEADERS, number, rest)


FLAGS = st.sampled_from([0, END_STREAM, PADDED, HAS_PRIORITY, END_STREAM | PADDED | HAS_PRIORITY])
CUTS = st.sampled_from([0, 3, 20, 20, 20])

FRAMES = st.one_of(
    st.builds(heads, NUMBERS, BLOCKS, FLAGS, CUTS),
    st.builds(heads, st.sampled_from([1, 3, 5, 7]), st.just(REQUEST), st.sampled_from([0, END_STREAM]), st.just(20)),
    st.builds(heads, NUMBERS, TRAILERS, st.just(END_STREAM), CUTS),
    st.builds(frame, st.just(DATA), st.sampled_from([0, 0, END_STREAM]), NUMBERS, st.binary(max_size=20)),
    st.builds(frame, st.just(DATA), st.just(PADDED), NUMBERS, st.sampled_from([b"\2abc\0\0", b"\0abc", b"\7abc", b""])),
    st.builds(lambda n, code: frame(RST_STREAM, 0, n, code.to_bytes(4, "big")), NUMBERS, WORDS),
    st.builds(window_update, NUMBERS, WORDS),
    st.builds(lambda name, value: frames.settings([(name, value)]), st.sampled_from([1, 2, 3, 4, 5, 99]), WORDS),
    st.builds(frame, st.just(SETTINGS), st.just(ACK), st.just(0), st.just(b"")),
    st.builds(frame, st.just(PING), st.sampled_from([0, ACK]), st.sampled_from([0, 0, 1]), PINGED),
    st.builds(frame, st.just(PRIORITY), st.just(0), NUMBERS, st.just(b"\0\0\0\x09\1")),
    st.builds(frame, st.just(99), st.just(0), NUMBERS, st.binary(max_size=5)),
)  # fmt: skip


def ours_of(events: list[Event]) -> list[Any]:
    said: list[Any] = []
    for event in events:
        match event:
            case Request(stream, headers, ended):
                said.append(("request", stream.id, headers.fields))
                said += [("end", stream.id)] * ended
            case Data(stream, content, ended):
                said += [("data", stream.id, content)] if content else []
                said += [("end", stream.id)] * ended
            case Reset(stream, code):
                said.append(("reset", stream.id, code))
            case PingAnswered(content):
                said.append(("pong", content))
    return said


def theirs_of(events: list[Any]) -> list[Any]:
    said: list[Any] = []
    for event in events:
        match type(event).__name__:
            case "RequestReceived":
                said.append(("request", event.stream_id, tuple((bytes(n), bytes(v)) for n, v in event.headers)))
            case "DataReceived":
                said += [("data", event.stream_id, event.data)] if event.data else []
            case "StreamEnded":
                said.append(("end", event.stream_id))
            case "StreamReset":
                said.append(("reset", event.stream_id, int(event.error_code)))
            case "PingAckReceived":
                said.append(("pong", event.ping_data))
    return said


def read_by_h2(parts: list[bytes]) -> list[Any]:
    """What it says of each part, up to one that is rejected, by an error of the connection or of a stream."""
    connection = import_module("h2.connection").H2Connection(
        import_module("h2.config").H2Configuration(client_side=False, header_encoding=None)
    )
    errors = import_module("h2.exceptions").ProtocolError
    connection.initiate_connection()
    said: list[Any] = []
    opened = 0
    for part in parts:
        kind, number = part[3], int.from_bytes(part[5:9], "big")
        if kind == HEADERS:
            opened = max(opened, number)
        if kind == RST_STREAM and (number > opened or not number & 1):
            return said  # h2 lets a reset of an idle stream pass; section 5.1 does not
        try:
            events = theirs_of(connection.receive_data(part))
        except errors:
            return said
        if _resets(connection.data_to_send()):
            return said
        said.append(events)
    return said


def read_by_us(parts: list[bytes]) -> list[Any]:
    connection = SansIoConnection(Http2Limits(max_ping_strikes=-1))
    said: list[Any] = []
    for part in parts:
        events = ours_of(connection.receive(part))
        out = b"".join(connection.take())
        if connection.failure or _resets(out):
            return said
        said.append(events)
    return said


def _resets(out: bytes) -> bool:
    at = 0
    while at < len(out):
        high, low, kind, *_ = frames.HEAD.unpack_from(out, at)
        if kind == RST_STREAM:
            return True
        at += frames.HEAD_BYTES + (high << 8 | low)
    return False


@pytest.mark.not_traced  # it runs the same lines many thousand times
@settings(max_examples=max(300, settings().max_examples))
@given(st.lists(FRAMES, max_size=12))
def test_any_frames_are_read_as_h2_reads_them(sent: list[bytes]) -> None:
    parts = [PREFACE + frames.settings([]), *sent]
    ours = read_by_us(parts)
    assert ours == read_by_h2(parts)
