"""TLS between a socket's transport and a connection above: bytes cut anywhere, alerts, and ends.

The client is OpenSSL's own, in memory. On sockets: test_grpc_handshakes.py,
tests/transports/http/connections/test_http_handshakes.py and tests/live/test_tls.py.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.transports.fairness.fair_queue import Share
from app.transports.fairness.turns import PEER_S, Turns
from app.transports.tls.texts import TlsTexts
from app.transports.tls.tls_connection import TlsConnection
from tests.support.waiting import until
from tests.transports.tls.certificates import Authority

LONG = bytes(range(256)) * 1024  # four times what is encrypted at once


class Socket(asyncio.Transport):
    """The socket's transport: keeps what is written, and says once that it is much."""

    def __init__(self) -> None:
        super().__init__()
        self.pause: Callable[[], None] | None = None
        self.out = bytearray()
        self.ended = ""
        self.reading = True

    def write(self, data: Any) -> None:
        assert not self.ended
        self.out += data
        if len(self.out) > 2**16 and self.pause is not None:
            pause, self.pause = self.pause, None
            pause()

    def get_write_buffer_size(self) -> int:
        return len(self.out)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write_eof(self) -> None:
        self.ended = "our side"

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended in {"closed", "aborted"}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.7", 5000) if name == "peername" else default


class Above(asyncio.Protocol):
    """The connection above: keeps what comes."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.transport: Any = None
        self.came: list[bytes] = []
        self.waiting: list[int] = []  # bytes, when it was told to pause
        self.ends = 0
        self.lost = False
        self._keeps_open = keeps_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.came.append(data)

    def pause_writing(self) -> None:
        self.waiting.append(self.transport.get_write_buffer_size())

    def eof_received(self) -> bool:
        self.ends += 1
        return self._keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class World:
    """A client, and the server's side of its connection, whose handshakes this counts."""

    def __init__(
        self,
        texts: TlsTexts,
        client: ssl.SSLContext,
        *,
        keeps_open: bool = False,
        room: bool = True,
        timeout_s: float = 600.0,
    ) -> None:
        self.timeout_s = timeout_s
        self.begun = self.ended = 0
        self.why: list[str] = []
        self._texts, self._room = texts, room
        self.above = Above(keeps_open=keeps_open)
        self.socket = Socket()
        self.connection = TlsConnection(lambda: self.above, self)
        self.connection.connection_made(self.socket)
        self._to_client, self._to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self._to_client, self._to_server, server_hostname="localhost")

    # Handshakes
    def context(self, connection: TlsConnection) -> ssl.SSLContext:
        return self._texts.context(["http/1.1"])

    def begin(self, connection: TlsConnection) -> bool:
        self.begun += 1
        return self._room

    def end(self, connection: TlsConnection) -> None:
        self.ended += 1

    def failed(self, connection: TlsConnection, why: str) -> None:
        self.why.append(why)

    def carry(self, cuts: Sequence[int] = ()) -> None:
        """What each side has written reaches the other one, the client's bytes in pieces of these sizes."""
        sent = self._to_server.read()
        for size in (*cuts, len(sent)):
            piece, sent = sent[:size], sent[size:]
            if piece:
                self.connection.data_received(piece)
        self._to_client.write(bytes(self.socket.out))
        self.socket.out.clear()

    def shake(self, cuts: Sequence[int] = ()) -> None:
        """Raises SSLError, as the client sees it."""
        for _ in range(4):
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.carry(cuts)

    def read(self) -> bytes:
        """All that has reached the client."""
        pieces = []
        with suppress(ssl.SSLWantReadError):
            while piece := self.client.read(2**16):
                pieces.append(piece)
        return b"".join(pieces)


@pytest.fixture(scope="module")
def texts(authority: Authority) -> TlsTexts:
    pair = authority.issue()
    return TlsTexts(pair.certificate.read_bytes(), pair.key.read_bytes())


@pytest.fixture(scope="module")
def client(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.certificate)


def played(scenario: Callable[[], None]) -> None:
    async def main() -> None:
        Turns.of_loop(lambda: 0.0)  # no handshake takes time, so none waits for its turn
        scenario()

    asyncio.run(main())


@given(cuts=st.lists(st.integers(1, 3000), max_size=20), sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=5))
def test_what_is_sent_comes_whole_wherever_it_is_cut(
    cuts: list[int], sizes: list[int], texts: TlsTexts, client: ssl.SSLContext
) -> None:
    def scenario() -> None:
        world = World(texts, client)
        world.shake(cuts)
        for size in sizes:
            world.client.write(LONG[:size])
        world.carry(cuts)
        assert b"".join(world.above.came) == b"".join(LONG[:size] for size in sizes)
        world.connection.writelines([LONG[:size] for size in sizes])
        world.connection.write(LONG)
        world.carry()
        assert world.read() == b"".join(LONG[:size] for size in sizes) + LONG

    played(scenario)


@pytest.mark.parametrize("pieces", [[LONG], [b"head", LONG, LONG]])
def test_who_is_told_to_pause_sees_all_that_waits(pieces: list[bytes], texts: TlsTexts, client: ssl.SSLContext) -> None:
    """It counts what its client has to read, and is told once: of 27 MB it saw 130 KB, which then became more."""

    def scenario() -> None:
        world = World(texts, client)
        world.shake()
        world.socket.pause = world.connection.pause_writing
        world.connection.write(*pieces) if len(pieces) == 1 else world.connection.writelines(pieces)
        assert world.above.waiting == [len(world.socket.out)]

    played(scenario)


def test_what_comes_at_once_is_handed_on_at_once(texts: TlsTexts, client: ssl.SSLContext) -> None:
    def scenario() -> None:
        world = World(texts, client)
        world.shake()
        for _ in range(10):
            world.client.write(b"request")
        world.carry()
        assert world.above.came == [b"request" * 10]

    played(scenario)


def test_a_record_is_read_at_once_where_the_next_has_begun(texts: TlsTexts, client: ssl.SSLContext) -> None:
    def scenario() -> None:
        world = World(texts, client)
        world.shake()
        reads: list[int] = []
        tls = world.connection._tls

        class Counted:
            pending = staticmethod(tls.pending)

            def read(self, size: int) -> bytes:
                reads.append(size)
                return tls.read(size)

        world.connection._tls = Counted()  # type: ignore[assignment] # of what reading needs
        for _ in range(2):
            world.client.write(LONG[:16384])
        sent = world._to_server.read()
        size = len(sent) // 2
        for piece in (sent[: size - 1], sent[size - 1 : size + 2], sent[size + 2 :]):
            world.connection.data_received(piece)
        assert b"".join(world.above.came) == LONG[:16384] * 2
        assert len(reads) < 10

    played(scenario)


def test_a_connection_counts_until_its_handshake_has_ended(texts: TlsTexts, client: ssl.SSLContext) -> None:
    def scenario() -> None:
        world = World(texts, client)
        assert (world.begun, world.ended, world.connection.address) == (1, 0, "10.0.0.7")
        world.shake()
        assert world.ended == 1
        assert world.above.transport is world.connection
        assert world.connection.get_extra_info("ssl_object").selected_alpn_protocol() is None
        world.connection.give_way()  # it is no handshake any more
        assert not world.socket.ended
        full = World(texts, client, room=False)
        assert full.socket.ended == "aborted"

    played(scenario)


def test_a_client_is_told_by_an_alert_why_its_handshake_failed(texts: TlsTexts, authority: Authority) -> None:
    def scenario() -> None:
        old = ssl.create_default_context(cafile=authority.certificate)
        old.set_ciphers("ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        world = World(texts, old)
        with pytest.raises(ssl.SSLError, match="handshake failure"):
            world.shake()
        assert (world.why, world.ended, world.socket.ended) == (["no shared cipher"], 1, "closed")

        mutual = TlsTexts(texts.certificate, texts.key, authority.certificate.read_bytes())
        world = World(mutual, ssl.create_default_context(cafile=authority.certificate))
        world.shake()
        with pytest.raises(ssl.SSLError, match="certificate required"):
            world.read()
        assert world.why == ["peer did not return a certificate"]
        assert world.above.transport is None

    played(scenario)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_a_handshake_that_takes_too_long_has_failed_once(sent: bytes, texts: TlsTexts, client: ssl.SSLContext) -> None:
    async def main() -> None:
        world = World(texts, client, timeout_s=0.0)
        if sent:
            world.connection.data_received(sent)
        await until(lambda: world.socket.ended == "aborted")
        world.connection.connection_lost(None)
        assert (world.why, world.ended) == (["it took too long"], 1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"GET / HTTP/1.1\r\n", b"HTTP/1.1 400 "), (b"PRI * HTTP/2.0", b"HTTP/1.1 400 "), (b"\0", b"")],
)
def test_what_is_no_tls_is_answered_in_the_clear(
    sent: bytes, answer: bytes, texts: TlsTexts, client: ssl.SSLContext
) -> None:
    def scenario() -> None:
        world = World(texts, client)
        world.connection.data_received(sent)
        assert bytes(world.socket.out[: len(answer)]) == answer
        assert (world.why, world.ended, world.socket.ended) == (["it sent no TLS"], 1, "closed")

    played(scenario)


def test_our_end_is_told_and_nothing_is_written_or_read_afterwards(texts: TlsTexts, client: ssl.SSLContext) -> None:
    def scenario() -> None:
        for end, state in (("close", "closed"), ("write_eof", "our side")):
            world = World(texts, client)
            world.shake()
            world.connection.write(b"last")
            getattr(world.connection, end)()
            assert world.socket.ended == state
            world.connection.write(b"nothing")
            world.client.write(b"too late")
            world.carry()
            assert world.read() == b"last"
            assert world.client.read(1) == b""  # close_notify came: else the client would want more
            assert world.above.came == []

    played(scenario)


def test_a_client_that_leaves_without_a_word_is_told_our_end(texts: TlsTexts, client: ssl.SSLContext) -> None:
    def scenario() -> None:
        world = World(texts, client)
        world.shake()
        world.connection.write(b"reply")
        assert not world.connection.eof_received()
        assert world.socket.ended == "closed"
        world.carry()
        assert world.read() == b"reply"
        assert world.client.read(1) == b""  # close_notify came
        begun = World(texts, client)
        assert not begun.connection.eof_received()
        assert (begun.socket.ended, bytes(begun.socket.out)) == ("closed", b"")

    played(scenario)


def test_what_a_client_sends_after_its_leave_is_not_kept(texts: TlsTexts, client: ssl.SSLContext) -> None:
    def scenario() -> None:
        world = World(texts, client, keeps_open=True)
        world.shake()
        world.client.write(b"request")
        with pytest.raises(ssl.SSLError):
            world.client.unwrap()
        world.carry()
        for _ in range(10):
            world.connection.data_received(LONG)
        assert world.connection._incoming.pending == 0
        world.connection.write(b"reply")
        world.carry()
        assert world.read() == b"reply"
        assert world.above.came == [b"request"]
        assert not world.socket.ended

    played(scenario)


@pytest.mark.parametrize("keeps_open", [True, False])
def test_a_client_that_ends_its_side_gets_its_reply_where_one_is_due(
    keeps_open: bool, texts: TlsTexts, client: ssl.SSLContext
) -> None:
    def scenario() -> None:
        world = World(texts, client, keeps_open=keeps_open)
        world.shake()
        world.client.write(b"request")
        with pytest.raises(ssl.SSLError):
            world.client.unwrap()  # it says so, and waits for the server's
        world.carry()
        assert world.above.came == [b"request"]
        if keeps_open:
            assert world.connection.eof_received()  # then the socket ends, too: it is told once
            world.connection.write(b"reply")
            assert world.socket.out
        assert world.above.ends == 1
        assert world.socket.ended == ("" if keeps_open else "closed")

    played(scenario)


def test_bytes_that_are_no_record_end_the_connection(texts: TlsTexts, client: ssl.SSLContext) -> None:
    def scenario() -> None:
        world = World(texts, client)
        world.shake()
        world.connection.data_received(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert world.socket.ended == "aborted"
        assert world.above.came == []

    played(scenario)


def test_nothing_is_left_of_a_connection_that_is_lost(texts: TlsTexts, client: ssl.SSLContext) -> None:
    def scenario() -> None:
        world = World(texts, client)
        world.shake()
        above, gone = world.above, weakref.ref(world.connection)
        world.connection.connection_lost(None)
        assert above.lost
        above.transport = None
        gc.disable()
        try:
            del world.connection  # which names the world: it counts its handshakes
            assert gone() is None
        finally:
            gc.enable()

    played(scenario)


def test_a_handshake_waits_while_the_time_of_its_client_is_over(texts: TlsTexts, client: ssl.SSLContext) -> None:
    async def main() -> None:
        turns = Turns.of_loop(lambda: PEER_S)
        turns.ended(Share("10.0.0.7"), 0.0)
        world = World(texts, client)
        world.shake()
        assert not world.socket.out
        assert not world.socket.reading
        assert not world.ended
        await asyncio.sleep(0.0)
        assert world.socket.reading
        world.shake()
        assert world.ended == 1
        assert world.client.version() is not None

    asyncio.run(main())


def test_a_client_that_leaves_while_its_handshake_waits_is_forgotten(texts: TlsTexts, client: ssl.SSLContext) -> None:
    async def main() -> None:
        turns = Turns.of_loop(lambda: PEER_S)
        turns.ended(Share("10.0.0.7"), 0.0)
        world = World(texts, client)
        world.shake()
        world.connection.connection_lost(None)
        assert not len(turns._queue)
        await asyncio.sleep(0.0)
        assert not world.socket.out
        assert (world.begun, world.ended, world.why) == (1, 1, ["the client left"])

    asyncio.run(main())
