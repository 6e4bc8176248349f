"""What is no call of gRPC gets an error of HTTP, once nothing more can be wrong with it; on a clock that leaps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.core.burst import Burst
from app.transports.grpc.application import GrpcApplication
from app.transports.http2 import frames
from app.transports.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM
from app.transports.http2.hpack import Decoder, encode_fields
from app.transports.memory.client_memory import ClientMemory
from tests.transports.http2.leaping_loop import Client, played, until_s

PROTOCOL_ERROR = b"\0\0\0\1"


def scenario(play: Callable[[Client], Awaitable[None]]) -> None:
    def application(clock: Callable[[], float]) -> GrpcApplication:
        return GrpcApplication([], 2**20, 2**14, Burst(), clock)

    played(play, ClientMemory(2**20), application=application, slow_s=60.0)


def head(*more: tuple[bytes, bytes], method: bytes = b"POST", end: bool = False) -> bytes:
    fields = [(b":method", method), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"here"), *more]
    return frames.frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), 1, encode_fields(fields))


def data(content: bytes, *, end: bool = False) -> bytes:
    return frames.frame(DATA, END_STREAM if end else 0, 1, content)


def status_of(client: Client) -> bytes | None:
    (found,) = [dict(Decoder().decode(each.payload).fields)[b":status"] for each in client.transport.frames()
                if each.kind == HEADERS] or [None]  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ([head(method=b"GET", end=True)], b"405"),
        ([head(end=True)], b"415"),
        ([head((b"content-type", b"application/json")), data(b"{"), data(b"}", end=True)], b"415"),
        ([head(), *[data(bytes(4000))] * 5], b"415"),
    ],
    ids=["no POST", "no content", "a short one", "a long one that goes on"],
)
def test_it_is_answered_when_it_has_ended_or_is_long(sent: list[bytes], status: bytes) -> None:
    async def play(client: Client) -> None:
        client.greet()
        for each in sent:
            assert status_of(client) is None
            client.send(each)
        assert status_of(client) == status

    scenario(play)


@pytest.mark.parametrize(
    "wrong",
    [head(end=False), data(b"five5", end=True)],
    ids=["a second head that does not end it", "other content than its length says"],
)
def test_what_is_wrong_with_its_rest_is_told_although_it_comes_later(wrong: bytes) -> None:
    """A reply to the head alone would end the stream before: h2spec 8.1 and 8.1.2.6 failed now and then."""

    async def play(client: Client) -> None:
        client.greet()
        client.send(head((b"content-length", b"4")))
        await asyncio.sleep(0)
        client.send(wrong)
        ends = [each.payload for each in client.transport.frames() if each.kind == RST_STREAM]
        assert ends == [PROTOCOL_ERROR]

    scenario(play)


def test_one_that_does_not_come_is_answered_all_the_same() -> None:
    async def play(client: Client) -> None:
        client.greet()
        client.send(head())
        await until_s(300.0)
        assert not client.protocol.connection.streams

    scenario(play)
