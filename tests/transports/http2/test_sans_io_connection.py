"""A connection beside the library h2: the same exchanges, however their bytes are cut; and what ends a flood."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from h2.events import StreamEnded

from app.transports.http2 import frames
from app.transports.http2.events import Data, Event, Request, Reset
from app.transports.http2.frames import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, SETTINGS
from app.transports.http2.hpack import encode_fields
from app.transports.http2.limits import Http2Limits
from app.transports.http2.sans_io_connection import SansIoConnection
from app.transports.http2.stream import ResetStreams
from tests.transports.http2.h2_client import client_connection

HEAD = [(":method", "POST"), (":scheme", "http"), (":path", "/a/B"), (":authority", "x"), ("te", "trailers")]
BLOCK = encode_fields([(name.encode(), value.encode()) for name, value in HEAD])
ANSWER = encode_fields([(b":status", b"200")])
END = encode_fields([(b"grpc-status", b"0")])
START = PREFACE + frames.settings([])


def request(number: int, *, end: bool = True, block: bytes = BLOCK) -> bytes:
    return frames.frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), number, block)


def sent_by(connection: SansIoConnection) -> bytes:
    out = b""
    while more := connection.take():
        out += b"".join(more)
    return out


def kinds_of(content: bytes) -> list[int]:
    kinds = []
    while content:
        high, low, kind, *_ = frames.HEAD.unpack_from(content)
        kinds.append(kind)
        content = content[frames.HEAD_BYTES + (high << 8 | low) :]
    return kinds


def told(events: Iterable[Event]) -> list[Any]:
    """What the events say, pieces of content joined."""
    said: list[Any] = []
    for event in events:
        match event:
            case Request(stream, headers, ended):
                said.append(("request", stream.id, headers.fields, ended))
            case Data(stream, content, ended):
                said.append(("data", stream.id, content, ended))
            case Reset(stream, code):
                said.append(("reset", stream.id, code))
    return said


# --- beside h2 ---


@pytest.fixture
def client() -> Any:
    library = import_module("h2.connection")
    made = library.H2Connection()
    made.initiate_connection()
    return made


def test_an_exchange_is_the_same_at_every_split_point(client: Any) -> None:
    """Three requests, with content, padding and trailers; h2 also changes its settings and pings."""
    client.send_headers(1, HEAD, end_stream=True)
    client.send_headers(3, HEAD)
    client.send_data(3, b"x" * 300, pad_length=7)
    client.send_data(3, b"y", end_stream=True)
    client.update_settings({4: 100})
    client.ping(b"12345678")
    client.send_headers(5, [*HEAD, ("x-long", "z" * 1000)])
    client.send_data(5, b"")
    client.send_headers(5, [("x-end", "1")], end_stream=True)
    content = client.data_to_send()

    whole = SansIoConnection(Http2Limits())
    expected, answered = told(whole.receive(content)), sent_by(whole)
    assert [each[:2] for each in expected] == [
        ("request", 1), ("request", 3), ("data", 3), ("data", 3), ("request", 5), ("data", 5), ("data", 5)
    ]  # fmt: skip
    for at in range(len(content)):
        split = SansIoConnection(Http2Limits())
        assert told([*split.receive(content[:at]), *split.receive(content[at:])]) == expected
        assert sent_by(split) == answered
    bytewise = SansIoConnection(Http2Limits())
    assert told([each for at in range(len(content)) for each in bytewise.receive(content[at : at + 1])]) == expected


def test_random_exchanges_with_h2_carry_every_byte_within_its_windows() -> None:
    """Both sides send contents of random lengths in random pieces, and h2 rejects what does not fit its windows."""
    for seed in range(150):
        Exchange(random.Random(seed)).play()  # noqa: S311 - for no secret


class Exchange:
    """h2 asks eight times, and gets eight answers."""

    def __init__(self, chance: random.Random) -> None:
        self.client = import_module("h2.connection").H2Connection()
        self.client.initiate_connection()
        self.client.update_settings({4: chance.choice([0, 1, 100, 65_535])})
        self.server = SansIoConnection(Http2Limits(stream_window=2**16))
        self.chance = chance
        numbers = range(1, 16, 2)
        self.asked = {number: chance.randbytes(chance.choice([0, 5, 1000, 30_000])) for number in numbers}
        self.wanted = {number: chance.randbytes(chance.choice([0, 1, 1000, 40_000])) for number in numbers}
        self.left = dict(self.asked)
        self.came, self.answered = dict.fromkeys(numbers, b""), dict.fromkeys(numbers, b"")
        self.open = set(numbers)

    def play(self) -> None:
        for number in self.asked:
            self.client.send_headers(number, HEAD)
        for _ in range(10_000):
            if not self.open:
                break
            self.send_some()
            content = self.client.data_to_send()
            cut = self.chance.randrange(len(content) + 1)
            self.serve([*self.server.receive(content[:cut]), *self.server.receive(content[cut:])])
            for event in self.client.receive_data(sent_by(self.server)):
                self.receive(event)
        assert self.came == self.asked
        assert self.answered == self.wanted
        assert not self.server.streams
        assert not self.server.unsent

    def send_some(self) -> None:
        for number in list(self.left):
            window = self.client.local_flow_control_window(number)
            most = min(window, 16_384, self.chance.choice([1, 100, 20_000]))
            if self.left[number] and not most:
                continue
            piece, self.left[number] = self.left[number][:most], self.left[number][most:]
            self.client.send_data(number, piece, end_stream=not self.left[number])
            if not self.left[number]:
                del self.left[number]

    def serve(self, events: list[Event]) -> None:
        for event in events:
            if not isinstance(event, Data):
                continue
            stream = event.stream
            self.came[stream.id] += event.content
            self.server.let_come(stream)
            if event.ended:
                self.server.send_headers(stream, ANSWER)
                self.server.send_data(stream, self.wanted[stream.id])
                self.server.send_headers(stream, END, end=True)

    def receive(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "StreamEnded":
            self.open.remove(event.stream_id)
        if kind == "DataReceived":
            self.answered[event.stream_id] += event.data
            self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if kind in {"DataReceived", "ResponseReceived"}:
            with suppress(Exception):  # the stream has ended in the same bytes
                self.client.increment_flow_control_window(self.chance.choice([100, 50_000]), event.stream_id)


# --- answers ---


def opened() -> tuple[SansIoConnection, Any]:
    connection = SansIoConnection(Http2Limits())
    connection.receive(START)
    (event,) = connection.receive(request(1))
    sent_by(connection)
    return connection, event


def test_a_whole_answer_is_three_frames() -> None:
    connection, event = opened()
    connection.send_whole(event.stream, ANSWER, b"abc", END)
    assert kinds_of(sent_by(connection)) == [HEADERS, DATA, HEADERS]
    assert repr(connection) == "<SansIoConnection 0 streams, 0 bytes wait>"


def test_an_answer_waits_for_windows_and_for_the_socket() -> None:
    connection, event = opened()
    connection.send_whole(event.stream, ANSWER, b"x" * 100_000, END)
    assert kinds_of(sent_by(connection)) == [HEADERS, *[DATA] * 4]
    assert repr(event.stream) == "<Stream 1 closed, 34465 bytes wait>"
    connection.blocked = True
    connection.receive(frames.window_update(0, 10**6) + frames.window_update(1, 10**6))
    assert sent_by(connection) == b""
    connection.blocked = False
    assert kinds_of(sent_by(connection)) == [*[DATA] * 3, HEADERS]


def test_an_answer_before_the_end_of_its_request_resets_it_without_an_error() -> None:
    connection = SansIoConnection(Http2Limits())
    (event,) = connection.receive(START + request(1, end=False))
    sent_by(connection)
    connection.send_headers(event.stream, ANSWER, end=True)
    assert sent_by(connection)[-4:] == b"\0\0\0\0"
    assert connection.receive(frames.frame(DATA, 0, 1, b"late")) == []
    assert not connection.failure


def test_a_drain_answers_what_was_opened_before_the_client_knew() -> None:
    connection, _ = opened()
    connection.begin_drain()
    assert len(connection.receive(request(3))) == 1
    connection.end_drain()
    assert connection.receive(request(5)) == []
    assert sorted(connection.streams) == [1, 3]


def test_an_error_after_a_drain_names_no_higher_stream_than_the_drain() -> None:
    """Section 6.8: the client may have tried those elsewhere."""
    connection, _ = opened()
    connection.begin_drain()
    connection.end_drain()
    connection.receive(request(3) + request(5))
    connection.fail(frames.ErrorCode.NO_ERROR, "")
    assert sent_by(connection).endswith(frames.goaway(1, frames.ErrorCode.NO_ERROR))


def test_the_first_list_after_the_client_made_its_table_smaller_says_that_none_is_used() -> None:
    """RFC 7541, section 4.2; hpack's decoder reads no other list before."""
    decoder = import_module("hpack").Decoder()
    connection = SansIoConnection(Http2Limits())
    connection.receive(PREFACE + frames.settings([(frames.HEADER_TABLE_SIZE, 100)]))
    decoder.max_allowed_table_size = 100
    for number in (1, 3):
        event = connection.receive(request(number))[-1]
        sent_by(connection)
        connection.send_whole(event.stream, ANSWER, b"abc", END)
        content = sent_by(connection)
        head, end = content[9 : 9 + content[2]], content[-len(END) :]
        assert [decoder.decode(block) for block in (head, end)] == [[(":status", "200")], [("grpc-status", "0")]]


def test_nothing_is_kept_of_a_stream_that_is_reset_while_the_window_of_the_connection_is_closed() -> None:
    connection, event = opened()
    connection.send_whole(event.stream, ANSWER, bytes(70_000), END)
    for number in range(3, 101, 2):
        (event,) = connection.receive(request(number))
        connection.send_whole(event.stream, ANSWER, b"x", END)
        connection.receive(reset(number, 8))
    assert not connection.failure
    assert list(connection._waiting) == list(connection.streams) == [1]


# --- floods ---

reset = frames.rst_stream


@pytest.mark.parametrize(
    "flood",
    [
        lambda n: request(n) + reset(n, 8),  # CVE-2023-44487
        lambda n: request(n) + frames.window_update(n, 0),  # CVE-2025-8671, the server resets
        lambda n: request(n) + frames.frame(DATA, 0, n, b"x"),  # likewise
        lambda _: frames.settings([(4, 1), (4, 2)]),  # CVE-2019-9515
        lambda _: frames.frame(PING, 0, 0, b"12345678"),  # CVE-2019-9512
        lambda _: frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\3\1"),  # CVE-2019-9513
        lambda _: frames.window_update(0, 1),
        lambda _: frames.frame(200, 0, 0),
        lambda n: request(n, end=False) + frames.frame(DATA, 0, n) * 3,  # CVE-2019-9518
        lambda n: request(n, block=b"\x82\x86\x84" + b"\0\1A\1b"),  # malformed: the server resets
    ],
)  # fmt: skip
def test_a_flood_that_asks_for_nothing_ends_its_connection(flood: Callable[[int], bytes]) -> None:
    connection = SansIoConnection(Http2Limits(), clock=lambda: 0.0)
    connection.receive(START)
    for number in range(1, 20_001, 2):
        connection.receive(flood(number))
        if connection.failure:
            break
    assert connection.failure in {"too many frames that ask for nothing", "too_many_pings"}
    assert number < 10_001
    assert connection.receive(request(number + 2)) == []


@pytest.mark.parametrize(
    "flood",
    [frames.frame(DATA, 0, 1), frames.frame(DATA, 0, 1, b"x"), frames.frame(HEADERS, END_HEADERS | END_STREAM, 1)],
)
def test_a_flood_for_a_stream_that_we_reset_ends_its_connection(flood: bytes) -> None:
    connection = SansIoConnection(Http2Limits(), clock=lambda: 0.0)
    (event,) = connection.receive(START + request(1, end=False))
    assert isinstance(event, Request)
    connection.send_headers(event.stream, END, end=True)
    connection.receive(flood * 50_000)
    assert connection.failure == "too many frames that ask for nothing"


def test_uploads_that_are_under_way_when_they_are_reset_end_no_connection() -> None:
    connection = SansIoConnection(Http2Limits(), clock=lambda: 0.0)
    connection.receive(START)
    events = connection.receive(b"".join(request(number, end=False) for number in range(1, 1001, 2)))
    for event in events:
        assert isinstance(event, Request)
        connection.send_headers(event.stream, END, end=True)
    for _ in range(16):
        for number in range(1, 1001, 2):
            connection.receive(frames.frame(DATA, 0, number, bytes(2**14)))
            sent_by(connection)
    assert not connection.failure


@pytest.mark.parametrize(("length", "is_reset"), [("10", False), ("11", True), (None, True)])
def test_an_early_answer_resets_a_request_only_if_its_rest_may_not_come_at_once(
    length: str | None, is_reset: bool
) -> None:
    """RFC 9113, section 8.1: a server may reset, and curl 7.88 loses the answer then."""
    head = HEAD if length is None else [*HEAD, ("content-length", length)]
    block = encode_fields([(name.encode(), value.encode()) for name, value in head])
    connection = SansIoConnection(Http2Limits(stream_window=10))
    (event,) = connection.receive(START + request(1, end=False, block=block))
    assert isinstance(event, Request)
    sent_by(connection)

    connection.send_headers(event.stream, ANSWER, end=True)
    assert kinds_of(sent_by(connection)) == [HEADERS, *[frames.RST_STREAM] * is_reset]
    assert not connection.streams

    assert connection.receive(frames.frame(DATA, END_STREAM, 1, bytes(10))) == []
    assert sent_by(connection) == b""
    (event,) = connection.receive(request(3))
    assert isinstance(event, Request)


def test_the_oldest_streams_that_we_reset_are_forgotten() -> None:
    found = ResetStreams()
    for number in range(1, 10_001, 2):
        found.add(number)
    assert [number in found for number in (1, 5903, 5905, 9999, 10_001)] == [False, False, True, True, False]
    assert repr(found) == "<ResetStreams [9991, 9993, 9995, 9997, 9999]>"


@pytest.mark.parametrize("part", [b"", b"\x82"])
def test_a_field_list_that_never_ends_ends_its_connection(part: bytes) -> None:
    """CVE-2024-27316."""
    connection = SansIoConnection(Http2Limits())
    connection.receive(START + frames.frame(HEADERS, 0, 1, b"\x82"))
    for _ in range(1000):
        connection.receive(frames.frame(CONTINUATION, 0, 1, part))
    assert connection.failure == "a field list that is too long"


@pytest.mark.parametrize("size", [199_000, 201_000])
def test_a_list_may_be_as_long_as_the_limit_and_the_client_of_a_longer_one_is_told(size: int) -> None:
    """However the setting is: the connection goes on, and whoever answers sees what is too long."""
    fields = [(name.encode(), value.encode()) for name, value in HEAD]
    block = encode_fields([*fields, (b"x", b"\xff" * size)])
    first, *more = [block[at : at + 2**14] for at in range(0, len(block), 2**14)]
    connection = SansIoConnection(Http2Limits(max_list_bytes=200_000))
    connection.receive(START + frames.frame(HEADERS, END_STREAM, 1, first))
    for part in more[:-1]:
        connection.receive(frames.frame(CONTINUATION, 0, 1, part))
    (event,) = connection.receive(frames.frame(CONTINUATION, END_HEADERS, 1, more[-1]))
    assert isinstance(event, Request)
    assert event.headers.too_long == (size > 200_000)


def test_a_client_that_cancels_some_of_its_calls_is_not_ended() -> None:
    """Answered calls earn what cancelled ones cost; here the clock stands still."""
    connection = SansIoConnection(Http2Limits(), clock=lambda: 0.0)
    connection.receive(START)
    for number in range(1, 40_000, 4):
        (event,) = connection.receive(request(number))
        connection.send_whole(event.stream, ANSWER, b"", END)
        connection.receive(request(number + 2) + reset(number + 2, 8))
        sent_by(connection)
    assert not connection.failure


@pytest.mark.parametrize(("size", "ended"), [(0, True), (1, True), (255, True), (256, False), (2000, False)])
def test_data_in_small_frames_cost_what_asks_for_nothing_costs(size: int, ended: bool) -> None:
    """Here the clock stands still, so nothing is given back."""
    connection = SansIoConnection(Http2Limits(), clock=lambda: 0.0)
    connection.receive(START)
    (event,) = connection.receive(request(1, end=False))
    assert isinstance(event, Request)
    for _ in range(70_000):
        connection.receive(frames.frame(DATA, 0, 1, bytes(size)))
        connection.let_come(event.stream)
        sent_by(connection)
        if connection.failure:
            break
    assert connection.failure == ("too many frames that ask for nothing" if ended else "")


def test_small_data_that_are_whole_requests_or_messages_end_no_connection() -> None:
    """The last frame of a request costs nothing, and whoever reads a message from a frame earns what it cost."""
    connection = SansIoConnection(Http2Limits(), clock=lambda: 0.0)
    connection.receive(START)
    for number in range(1, 20_001, 2):
        connection.receive(request(number, end=False) + frames.frame(DATA, END_STREAM, number, b"{}"))
        connection.send_whole(connection.streams[number], ANSWER, b"12345", END)
        sent_by(connection)
    (event,) = connection.receive(request(number + 2, end=False))
    for _ in range(70_000):
        connection.receive(frames.frame(DATA, 0, number + 2, b"message"))
        connection.earn(1)
        connection.let_come(event.stream)
        sent_by(connection)
    assert not connection.failure


def test_a_client_that_opens_both_windows_for_each_answer_is_not_ended() -> None:
    connection = SansIoConnection(Http2Limits(), clock=lambda: 0.0)
    connection.receive(START)
    for number in range(1, 10_001, 2):
        (event,) = connection.receive(request(number))
        connection.send_whole(event.stream, ANSWER, b"12345", END)
        connection.receive(frames.window_update(0, 5) + frames.window_update(number, 5))
        sent_by(connection)
    assert not connection.failure


def test_a_client_that_pings_while_a_long_answer_comes_is_not_ended() -> None:
    """As gRPC's clients do, to measure what the connection carries."""
    connection = SansIoConnection(Http2Limits(), clock=lambda: 0.0)
    connection.receive(START)
    (event,) = connection.receive(request(1))
    connection.send_whole(event.stream, ANSWER, bytes(10**6), END)
    for _ in range(10):
        sent_by(connection)
        opened = frames.window_update(0, 50_000) + frames.window_update(1, 50_000)
        connection.receive(frames.frame(PING, 0, 0, b"12345678") + opened)
    assert not connection.failure


def test_streams_beyond_the_most_are_refused() -> None:
    connection = SansIoConnection(Http2Limits(max_streams=2))
    events = connection.receive(START + b"".join(request(number) for number in (1, 3, 5)))
    assert [event.stream.id for event in events if isinstance(event, Request)] == [1, 3]
    assert sent_by(connection).endswith(frames.rst_stream(5, frames.ErrorCode.REFUSED_STREAM))


def test_many_streams_that_wait_cost_no_time_for_each_frame() -> None:
    """Their windows are closed: they are not looked at until one is opened."""
    connection = SansIoConnection(Http2Limits())
    connection.receive(PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, 0)]))
    for number in range(1, 2001, 2):
        (event,) = connection.receive(request(number))
        connection.send_whole(event.stream, ANSWER, b"x", END)
    assert not connection._waiting
    assert kinds_of(sent_by(connection))[:3] == [SETTINGS, frames.WINDOW_UPDATE, SETTINGS]
    connection.receive(frames.window_update(5, 1))
    assert kinds_of(sent_by(connection)) == [DATA, HEADERS]


@pytest.mark.parametrize("size", [200, 300, 20_000])
@pytest.mark.parametrize("trailers", [False, True])
def test_a_whole_answer_may_have_a_field_list_of_any_length(size: int, trailers: bool) -> None:
    """The length of a frame has three bytes (RFC 9113, section 4.1)."""
    client = client_connection()
    client.initiate_connection()
    client.send_headers(1, HEAD, end_stream=True)
    connection = SansIoConnection(Http2Limits())
    (asked,) = connection.receive(client.data_to_send())
    long = encode_fields([(b":status", b"200"), (b"x", b"a" * size)])
    if trailers:
        connection.send_whole(asked.stream, ANSWER, b"content", encode_fields([(b"x", b"a" * size)]))
    else:
        connection.send_whole(asked.stream, long, b"content")
    events = client.receive_data(sent_by(connection))
    fields = [(name, value) for event in events for name, value in getattr(event, "headers", ())]
    assert (b"x", b"a" * size) in fields
    assert isinstance(events[-1], StreamEnded)
