"""Windows of HTTP/2: what a client and a server count of each other's data is the same, and comes back whole.

Whatever a client does that its own count allows, padded, late, of streams that were reset or answered early, and
whatever faults of single streams lie between:

- its credit for the connection is never less than half of the window, nor that of a stream whose data were taken;
- the server sends no more than the client's windows let it, whatever the client makes of them meanwhile, and nothing
  of a stream after its reset;
- streams take turns: of two that have something to send and may, neither is more than a frame ahead;
- when all streams are gone, nothing is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.transports.http2 import frames
from app.transports.http2.frames import DATA, END_STREAM, GOAWAY, HEADERS, PADDED, RST_STREAM, WINDOW_UPDATE, ErrorCode
from app.transports.http2.limits import Http2Limits
from app.transports.http2.sans_io_connection import SansIoConnection
from app.transports.http2.stream import Stream
from tests.transports.http2.test_sans_io_connection import ANSWER, START, request, sent_by

FRAME = 2**14
LIMITS = Http2Limits(stream_window=2**15, connection_window=2**17)


def read_frames(content: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    while content:
        high, low, kind, flags, number = frames.HEAD.unpack_from(content)
        end = frames.HEAD_BYTES + (high << 8 | low)
        yield kind, flags, number, content[frames.HEAD_BYTES : end]
        content = content[end:]


@dataclass
class Side:
    """A client's count of one stream, or of the connection: what it may send, and what it lets come."""

    credit: int
    allows: int = frames.DEFAULT_WINDOW
    reset: bool = False
    ended: bool = False  # by the client, also by its own reset
    answered: bool = False  # by the server, to its end
    turns: int = 0  # frames with data that came


@dataclass
class Pair:
    """A server's connection, and the model of its client."""

    server: SansIoConnection = field(default_factory=lambda: SansIoConnection(LIMITS))
    whole: Side = field(default_factory=lambda: Side(frames.DEFAULT_WINDOW))
    sides: dict[int, Side] = field(default_factory=dict)
    streams: dict[int, Stream] = field(default_factory=dict)
    initial: int = frames.DEFAULT_WINDOW

    def __post_init__(self) -> None:
        self.send(START)

    def send(self, content: bytes) -> None:
        self.server.receive(content)
        self.read()

    def read(self) -> None:
        for kind, flags, number, payload in read_frames(sent_by(self.server)):
            side = self.sides[number] if number else self.whole
            assert not (side.reset and kind in {DATA, HEADERS}), "nothing follows a reset"
            if kind == WINDOW_UPDATE:
                side.credit += int.from_bytes(payload)
            elif kind == RST_STREAM:
                side.reset = True
                assert int.from_bytes(payload) != ErrorCode.STREAM_CLOSED, "it was under way"
            elif kind == DATA:
                side.turns += 1
                for each in (side, self.whole):
                    each.allows -= len(payload)
                    assert each.allows >= 0 or not payload, "more than the window"
            assert kind != GOAWAY, payload
            side.answered |= kind in {DATA, HEADERS} and bool(flags & END_STREAM)
        self.server.take_events()

    # --- what a client does ---

    def open(self, end: bool) -> None:
        number = 2 * len(self.sides) + 1
        self.sides[number] = Side(LIMITS.stream_window, self.initial, ended=end)
        self.send(request(number, end=end))
        self.streams[number] = self.server.streams[number]

    def data(self, number: int, size: int, padding: int, end: bool) -> None:
        """As much as its credit lets it, also of a stream whose reset, or whole answer, it has not read."""
        side = self.sides[number]
        padding = min(padding, side.credit - 1, 255)
        size = min(size, side.credit - padding - 1, self.whole.credit - padding - 1, FRAME - 256)
        if side.ended or size < 0 or padding < 0:
            return
        side.ended = end
        payload = bytes([padding]) + bytes(size + padding)
        for each in (side, self.whole):
            each.credit -= len(payload)
        self.send(frames.frame(DATA, PADDED | (END_STREAM if end else 0), number, payload))
        if number in self.server.streams:
            self.server.let_come(self.streams[number])
            self.read()
            assert end or 2 * side.credit > LIMITS.stream_window, "the window of the stream comes back"

    def allow(self, number: int, more: int) -> None:
        side = self.sides[number] if number else self.whole
        if not side.reset:
            side.allows += more
            self.send(frames.window_update(number, more))

    def set_initial(self, window: int) -> None:
        for side in self.sides.values():
            side.allows += window - self.initial
        self.initial = window
        self.send(frames.settings([(frames.INITIAL_WINDOW_SIZE, window)]))

    def leave(self, number: int, fault: bool) -> None:
        """Resets the stream, or makes the server do it."""
        if not self.sides[number].reset:
            self.sides[number].reset = not fault
            self.sides[number].ended |= not fault
            self.send(frames.window_update(number, 0) if fault else frames.rst_stream(number, ErrorCode.CANCEL))

    # --- what the server does ---

    def reply(self, number: int, size: int, end: bool) -> None:
        stream = self.streams[number]
        if not self.sides[number].answered and not stream.local_closed:
            self.server.send_headers(stream, ANSWER)
            self.server.send_data(stream, bytes(size), end=end)
            self.read()

    def refuse(self, number: int) -> None:
        self.server.reset(self.streams[number], ErrorCode.CANCEL)
        self.read()

    def check(self) -> None:
        assert 2 * self.whole.credit > LIMITS.connection_window, "the window of the connection comes back"
        assert self.server.unsent == sum(each.unsent for each in self.server.streams.values())


_SIZES = [0, 1, 300, FRAME, 5 * FRAME]


def _act(pair: Pair, draw: Random) -> None:
    number = 2 * max(0, len(pair.sides) - draw.randint(1, 4)) + 1
    seldom = draw.random() < 0.2
    match draw.choice(["open", "data", "data", "allow", "allow", "initial", "leave", "reply", "reply", "refuse"]):
        case "open":
            pair.open(seldom)
        case "data":
            pair.data(number, draw.choice(_SIZES), draw.choice([0, 255]), seldom)
        case "allow":
            pair.allow(draw.choice([0, number]), draw.choice([1, 20_000, 70_000]))
        case "initial":
            pair.set_initial(draw.choice([0, 100, 20_000, 100_000]))
        case "leave":
            pair.leave(number, draw.random() < 0.5)
        case "reply":
            pair.reply(number, draw.choice(_SIZES), draw.random() < 0.5)
        case "refuse":
            pair.refuse(number)


@pytest.mark.parametrize("seed", range(20))
def test_windows_are_counted_alike_and_come_back(seed: int) -> None:
    pair, draw = Pair(), Random(seed)  # noqa: S311 - the same ones in each run
    pair.open(False)
    for _ in range(150):
        _act(pair, draw)
        pair.check()
    pair.allow(0, 2**24)
    if seed % 2:
        pair.set_initial(2**24)
    else:
        for number in pair.sides:
            pair.allow(number, 2**24)
    assert not pair.server.unsent, "all windows are open"
    for number in [*pair.server.streams]:
        pair.leave(number, False)
    assert not pair.server.streams
    assert pair.server.held < 4096, "what is left are places for streams"


@pytest.mark.parametrize("late", [False, True], ids=["of open streams", "of streams that were refused"])
@pytest.mark.parametrize("padding", [0, 255])
def test_uploads_of_many_windows_never_stall(late: bool, padding: int) -> None:
    """Ten windows of the connection, and of each stream."""
    pair = Pair()
    for number in range(1, 41, 2):
        pair.open(False)
        if late:
            pair.refuse(number)
        for _ in range(40):
            pair.data(number, 2000, padding, False)
            pair.check()
        if not late:
            pair.data(number, 1, padding, True)


@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=6),
    st.lists(st.sampled_from([1000, FRAME, 3 * FRAME]), max_size=40),
)
def test_streams_that_may_send_take_turns(sizes: list[int], opened: list[int]) -> None:
    """One large reply holds up no other: of two that wait and may go neither is more than a frame ahead."""
    pair = Pair()
    pair.set_initial(2**20)
    for count in sizes:
        pair.open(True)
        number = 2 * len(pair.sides) - 1
        pair.server.blocked = True
        pair.reply(number, count * FRAME, True)
    pair.server.blocked = False
    for more in [*opened, 2**21]:
        pair.allow(0, more)
        turns = [pair.sides[number].turns for number in pair.server.streams]
        assert max(turns, default=0) - min(turns, default=0) <= 1, turns
    assert not pair.server.streams
