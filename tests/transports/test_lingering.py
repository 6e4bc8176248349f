"""The last reply of a connection is read, over real sockets, on uvloop and on asyncio's event loop."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import uvloop

from app.transports import lingering as module
from app.transports.grpc.tls_handshakes import GrpcHandshakes
from app.transports.http2 import frames
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Http2Connections, Http2Protocol
from app.transports.http2.sending import DRAIN
from app.transports.http2.stream import Stream
from app.transports.http2.times import Times
from app.transports.memory.client_memory import ClientMemory
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.texts import TlsTexts
from app.transports.tls.tls_connection import TlsConnection
from tests.support.fakes import fake_time, run_in_fake_time
from tests.support.waiting import HANG_S, until
from tests.transports.http1.connection_world import MAX_BODY, Transport, World, request, served, stays_open
from tests.transports.http2.test_sans_io_connection import ANSWER, END
from tests.transports.http2.test_sans_io_connection import request as http2_request

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
MIB = 1024**2


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}])
def test_a_client_that_sends_a_far_too_large_body_reads_its_413(loop: Any, headers: dict[str, str]) -> None:
    def sends(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/v1/models/m:predict", b" " * (70 * MIB), headers)
        with closing(connection):
            return connection.getresponse().status

    async def client(_: World, port: int) -> None:
        assert await asyncio.to_thread(sends, port) == 413

    assert MAX_BODY < 70 * MIB
    served(loop, client)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_the_event_loop_has_not_seen_is_unread(loop: Any) -> None:
    async def client(world: World, port: int) -> None:
        world.device.seconds = 0.0
        with socket.create_connection(("127.0.0.1", port)) as connected:
            await until(lambda: len(world.state.connections) == 2)
            (connection,) = [each for each in world.state.connections if each is not world.connection]
            assert not connection.is_unread
            connected.sendall(request())
            assert connection.is_unread
            await until(lambda: connection._replies == 1)
            assert not connection.is_unread

    served(loop, client)


def test_many_that_are_rejected_together_all_read_it() -> None:
    """1.2 GB in all, of clients that read nothing before they have sent everything."""

    def sends(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/v1/models/m:predict", b" " * (48 * MIB))
        with closing(connection):
            return connection.getresponse().status

    async def client(_: World, port: int) -> None:
        with ThreadPoolExecutor(25) as threads:
            running = asyncio.get_running_loop()
            replies = [running.run_in_executor(threads, sends, port) for _ in range(25)]
            assert await asyncio.gather(*replies) == [413] * 25

    served(uvloop.new_event_loop, client)


LONG = 300_000
WINDOWS = frames.settings([(frames.INITIAL_WINDOW_SIZE, 2**30)]) + frames.window_update(0, 2**30)
GOAWAY = frames.goaway(1, 0)


class Answering:
    """Answers each request at length."""

    def begin(self, connection: Http2Protocol, stream: Stream, *_: Any) -> None:
        connection.connection.send_whole(stream, ANSWER, bytes(LONG), END)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_a_slow_client_of_http2_reads_all_of_its_reply_while_its_connection_drains(
    loop: Any, secure: bool, certificate: tuple[bytes, bytes]
) -> None:
    """It opens its windows as it reads (RFC 9113, section 6.9), long after all was sent."""
    key, chain = certificate

    def connects(address: tuple[str, int]) -> socket.socket:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(address)
        if secure:
            context = ssl.create_default_context(cadata=chain.decode())
            context.set_alpn_protocols(["h2"])
            client = context.wrap_socket(client, server_hostname="localhost")
        client.sendall(frames.PREFACE + WINDOWS + http2_request(1))
        return client

    def reads(client: socket.socket) -> bytes:
        came = b""
        while GOAWAY not in came:
            part = client.recv(4096)
            assert part, "the connection ended within the reply"
            came += part
            client.sendall(frames.window_update(0, 4096))
        assert client.recv(4096) == b"", "our side is closed"
        return came

    async def main() -> None:
        shared = Http2Connections(Answering(), limits=Http2Limits(), times=Times(), memory=ClientMemory(), most=1)
        make = partial(Http2Protocol, shared)
        handshakes = GrpcHandshakes(shared, ServedTls(lambda: TlsTexts(chain, key)), HANG_S)
        of_socket = partial(TlsConnection, make, handshakes) if secure else make
        listening = await asyncio.get_running_loop().create_server(of_socket, "127.0.0.1", 0)
        with await asyncio.to_thread(connects, listening.sockets[0].getsockname()) as client:
            await until(lambda: any(each.connection.last_stream for each in shared.open))
            (connection,) = shared.open
            connection.drain()
            await asyncio.to_thread(client.sendall, frames.frame(frames.PING, frames.ACK, 0, DRAIN))
            assert (await asyncio.to_thread(reads, client)).count(b"\0") > LONG
        await until(lambda: not shared.open)
        listening.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("ways", [["give_way"], ["close_if_idle", "shutdown"], ["close_if_idle", "give_way"]], ids=str)
def test_one_that_has_no_more_time_says_so_and_waits_for_no_client(loop: Any, ways: list[str]) -> None:
    """For a new connection, or since the server ends: the client, which does not close, holds no descriptor of ours."""

    async def client(world: World, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frames.PREFACE + WINDOWS)
        served = world.state.connections
        await until(lambda: any(isinstance(each, Http2Protocol) and each.connection.settings_came for each in served))
        (mine,) = served - {world.connection}
        getattr(mine, ways[0])()
        assert (await reader.read()).endswith(frames.goaway(0, 0, "the server ends"))
        for way in ways[1:]:
            assert mine in served
            getattr(mine, way)()
        await until(lambda: served == {world.connection})
        writer.close()

    served(loop, client)


@contextmanager
def lingering(lost: Callable[[], None], unsent: int = 0) -> Iterator[tuple[Transport, socket.socket]]:
    """A transport that has a socket and lingers, and its client's, which does not close.

    unsent: bytes of the reply that the transport still has.
    """
    transport = Transport(asyncio.Protocol())
    transport.unread = unsent
    with stays_open(transport) as client:
        module.Lingering(transport, lambda _: lost())
        yield transport, client


def test_who_has_yet_to_take_the_reply_may_be_silent_and_has_more_time() -> None:
    async def main(taken: bool) -> None:
        lost: list[float] = []
        begun_s = fake_time()
        with lingering(lambda: lost.append(fake_time()), 16 * 1024 * 60) as (transport, _):
            await asyncio.sleep(85.0)
            assert not lost
            if taken:
                transport.unread = 0
            await asyncio.sleep(10.0)
            assert lost[0] - begun_s == pytest.approx(90.0, abs=0.1)

    run_in_fake_time(main(False))
    run_in_fake_time(main(True))


def test_who_has_ended_its_side_gets_the_rest_of_the_reply() -> None:
    async def main() -> None:
        lost: list[float] = []
        with lingering(lambda: lost.append(fake_time()), MIB) as (transport, client):
            client.shutdown(socket.SHUT_WR)
            await asyncio.sleep(20.0)
            assert not lost
            transport.unread = 0
            await asyncio.sleep(1.0)
            assert lost

    run_in_fake_time(main())


def test_one_that_is_hastened_waits_for_the_client_s_kernel_alone() -> None:
    async def main() -> None:
        lost: list[float] = []
        with lingering(lambda: lost.append(fake_time()), MIB) as (transport, _):
            served: Any = transport.get_protocol()
            served.hasten()
            await asyncio.sleep(20.0)
            assert not lost
            transport.unread = 0
            await asyncio.sleep(1.0)
            assert lost

    run_in_fake_time(main())


def test_a_client_that_has_reset_its_connection_meanwhile_raises_nothing() -> None:
    """No side of it can be closed any more."""

    class Lingers(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            module.Lingering(transport, lost.append)

    async def main() -> None:
        listening = await asyncio.get_running_loop().create_server(Lingers, "127.0.0.1", 0)
        client.connect(listening.sockets[0].getsockname())
        await until(lambda: bool(lost))
        listening.close()

    for loop in LOOPS:
        lost: list[Exception | None] = []
        client = socket.socket()
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main())
        assert len(lost) == 1


@pytest.mark.parametrize(("sent", "every_s", "closes_s"), [(1, 60.0, 5.0), (1, 4.0, 30.0), (2 * MIB, 0.01, None)])
def test_lingering_has_bounds_of_silence_of_time_and_of_bytes(
    sent: int, every_s: float, closes_s: float | None
) -> None:
    async def main() -> None:
        lost: list[float] = []
        begun_s, arrived = fake_time(), 0
        with lingering(lambda: lost.append(fake_time())) as (transport, client):
            while not lost and fake_time() < begun_s + 40.0:
                with suppress(BlockingIOError):  # its kernel takes no more just now
                    arrived += client.send(b"x" * sent)
                for _ in range(int(every_s / 0.01)):
                    await asyncio.sleep(0.01)
                    if lost:
                        break
            assert transport.aborted
        if closes_s is None:
            assert 256 * MIB < arrived < 270 * MIB
        else:
            assert lost[0] - begun_s == pytest.approx(closes_s, abs=0.02)

    run_in_fake_time(main())


def test_it_ends_when_the_client_closes_and_when_it_resets() -> None:
    async def main(reset: bool) -> None:
        lost: list[float] = []
        with lingering(lambda: lost.append(fake_time())) as (_, client):
            client.send(b"x" * 1000)
            await asyncio.sleep(0.1)
            assert not lost
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            await asyncio.sleep(0.1)
            assert lost

    for reset in (False, True):
        run_in_fake_time(main(reset))


def test_all_that_linger_have_a_tenth_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    drop = module._drop

    def counted(transport: asyncio.Transport) -> int | None:
        looks.append(fake_time())
        return drop(transport)

    monkeypatch.setattr(module, "_drop", counted)

    async def main() -> None:
        with ExitStack() as clients:
            for _ in range(400):
                clients.enter_context(lingering(lambda: None))
            await asyncio.sleep(2.0)
            assert len(looks) == pytest.approx(2.0 * 0.1 / 10e-6, rel=0.05)  # 10 us for each, where nothing waits
            await asyncio.sleep(module._SILENCE_S)

    run_in_fake_time(main())


def test_those_of_an_event_loop_that_has_ended_take_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ended() -> None:
        for _ in range(400):
            with lingering(lambda: None) as (transport, _):
                monkeypatch.setattr(transport, "abort", lambda: None)  # its loop ends first

    run_in_fake_time(ended())
    test_all_that_linger_have_a_tenth_of_a_core(monkeypatch)


def test_who_is_closed_meanwhile_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptor may be another connection's by then."""

    async def main() -> None:
        with lingering(lambda: None) as (transport, client):
            await asyncio.sleep(0.005)
            monkeypatch.setattr(transport, "closed", True)
            client.send(b"x")
            await asyncio.sleep(0.1)
            assert transport.get_extra_info("socket").recv(10) == b"x"

    run_in_fake_time(main())
