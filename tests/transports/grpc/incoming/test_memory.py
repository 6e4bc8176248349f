"""What strangers make the gRPC port take is counted: calls, field lists, connections (docs/architecture.md)."""

from __future__ import annotations

import asyncio
import gc
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.protocols.open_inference.ordered_stream import answer_in_order
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from app.transports.http2.hpack import encode_number
from app.transports.memory.client_memory import ClientMemory
from tests.support.waiting import HANG_S, until
from tests.transports.grpc.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    Http2Client,
    frame,
)
from tests.transports.memory.memory_bound import GRPC_CONNECTION_BYTES, most_bytes

SERVICE = "inference.GRPCInferenceService"
UNARY, STREAM = f"/{SERVICE}/ServerLive", f"/{SERVICE}/ModelStreamInfer"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
MIB = 2**20

Pairs = Sequence[tuple[bytes, bytes]]


def string(content: bytes) -> bytes:
    return encode_number(len(content), 0x7F, 0) + content


def block(path: str, pairs: Pairs) -> bytes:
    """Literals that enter no table (RFC 7541, section 6.2.2), which share nothing."""
    usual = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode())]
    fields = [*usual, (b"content-type", b"application/grpc"), *pairs]
    return b"".join(b"\0" + string(name) + string(value) for name, value in fields)


def head(stream: int, content: bytes) -> bytes:
    """In frames of their most bytes."""
    first, rest = content[: 2**14], content[2**14 :]
    parts = [rest[at : at + 2**14] for at in range(0, len(rest), 2**14)]
    frames = [frame(HEADERS, 0 if parts else END_HEADERS, stream, first)]
    return b"".join(frames + [frame(CONTINUATION, END_HEADERS * (each is parts[-1]), stream, each) for each in parts])


# --- one call ---

#: Metadata of the n-th call.
HEADS: dict[str, Any] = {
    "few fields": lambda n: [(b"traceparent", b"%055d" % n), (b"grpc-timeout", b"9999999S")],
    "short fields": lambda n: [*[(b"%d" % each, b"%03d" % (n % 1000)) for each in range(10)], (b"x", b"%d" % n)],
    "many fields": lambda n: [(b"%03d" % each, b"%03d" % (n % 1000)) for each in range(380)],
}
BEGUN = b"\0\0\0\xff\0x"


async def answer(_: Any, __: GrpcCall) -> bytes:
    await asyncio.Event().wait()
    return b""


def answer_stream(requests: AsyncIterator[Any], call: GrpcCall) -> AsyncIterator[Any]:
    """As ModelStreamInfer, whose calls take the most."""
    return answer_in_order(requests, lambda message: answer(message, call))


def server(memory: ClientMemory, **more: Any) -> GrpcServer:
    calls = GrpcCalls("test", lambda _: None, 1e3 * HANG_S, memory=memory)
    service = Service(calls, SERVICE, {"ServerLive": answer, "ModelStreamInfer": answer_stream})
    options = GrpcOptions("127.0.0.1", 0, **more)
    return GrpcServer(options, [service], lambda: True)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(
    ("path", "sent"),
    [(UNARY, b""), (UNARY, bytes(5)), (STREAM, BEGUN), (WATCH, bytes(5)), (REFLECTION, BEGUN)],
    ids=["no message", "under way", "stream that began", "watch of health", "reflection"],
)
def test_an_open_call_takes_no_more_than_it_counts(path: str, sent: bytes, name: str) -> None:
    count = 15

    async def main() -> tuple[float, float]:
        memory = ClientMemory(2**40)
        served = server(memory)
        await served.start()
        client = await asyncio.to_thread(Http2Client, served.port)

        async def open_calls(first: int) -> tuple[int, int]:
            for number in range(first, first + count):
                content = head(2 * number + 1, block(path, HEADS[name](number)))
                ends = sent == bytes(5)
                client.send(content + (frame(DATA, int(ends), 2 * number + 1, sent) if sent else b""))
            await until(lambda: served.calls_under_way() == first + count)
            for _ in range(10):
                await asyncio.sleep(0)
            gc.collect()
            return tracemalloc.get_traced_memory()[0], memory.bodies + memory.unread

        taken, counted = await open_calls(0)
        more_taken, more_counted = await open_calls(count)
        client.socket.close()
        await until(lambda: memory.bodies + memory.unread == 0)
        await served.stop(0)
        return (more_taken - taken) / count, (more_counted - counted) / count

    tracemalloc.start()
    try:
        taken, counted = asyncio.run(main())
    finally:
        tracemalloc.stop()
    assert taken <= counted


# --- all of a process ---

#: The memory for clients, and the most that a message may have.
LIMIT, MOST_MESSAGE = 16 * MIB, MIB

CONNECTIONS = 150


async def serve() -> None:
    """In a process of its own, whose RSS has nothing else in it."""
    memory = ClientMemory(LIMIT)
    served = server(memory, max_message_bytes=MOST_MESSAGE)
    await served.start()
    sys.stdout.write(f"{served.port}\n")
    sys.stdout.flush()
    while True:
        await asyncio.sleep(0.05)
        sys.stdout.write(f"{int(memory.full)} {served.calls_under_way()}\n")
        sys.stdout.flush()


@contextmanager
def a_process() -> Iterator[subprocess.Popen[str]]:
    code = "import uvloop; from tests.transports.grpc.incoming.test_memory import serve; uvloop.run(serve())"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def rss(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096


def worst_connection() -> bytes:
    """All that is not counted: full tables, lists that are known, streams that were reset, half a frame, a message."""
    table = b"".join(b"\x40" + string(b"%d" % each) + string(b"") for each in range(100, 228))
    lists = [b"".join(b"\0" + string(b"%02d" % (each + n)) + string(b"") for each in range(28)) for n in range(16)]
    usual = block(f"/{SERVICE}/None", ())
    parts = [head(1, usual + table)]
    parts += [head(3 + 2 * n, usual + each) for n, each in enumerate(lists)]
    parts += [head(101 + 2 * n, usual) for n in range(5)]
    parts.append(head(10_001, block(UNARY, ())))
    parts.append(frame(DATA, 0, 10_001, struct.pack("!BI", 0, MOST_MESSAGE) + bytes(4000)))
    return b"".join(parts) + frame(DATA, 0, 10_001, bytes(2**14))[: 2**14]


def test_what_the_worst_clients_make_a_process_take_is_in_the_formula() -> None:
    """RSS is compared: first with what connections leave uncounted, then with all the memory for clients held, too."""
    with a_process() as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with Http2Client(port) as first:
            first.send(worst_connection())
            first.wait_for(lambda got: got.kind == HEADERS)
        before = rss(process)
        clients = [Http2Client(port) for _ in range(CONNECTIONS)]
        for each in clients:
            each.send(worst_connection())
        read_until(process, lambda _, calls: calls == CONNECTIONS)
        connections = rss(process) - before
        assert connections < CONNECTIONS * (GRPC_CONNECTION_BYTES - 2**15)

        calls = [Http2Client(port) for _ in range(4)]
        kinds = [(UNARY, b""), (UNARY, BEGUN), (UNARY, bytes(5)), (STREAM, b"")]
        for client, (path, sent) in zip(calls, kinds, strict=True):
            for number in range(1, 3001, 2):
                message = frame(DATA, int(sent == bytes(5)), number, sent) if sent else b""
                client.send(head(number, block(path, HEADS["short fields"](number))) + message)
        read_until(process, lambda full, _: full)
        most = most_bytes(
            2 * LIMIT,
            max_body_bytes=MOST_MESSAGE,
            connections=0,
            max_head_bytes=0,
            grpc_connections=CONNECTIONS,
            executes=False,
        )
        assert rss(process) - before < most - LIMIT  # nothing is in the queue, which has the other half
        for each in (*clients, *calls):
            each.socket.close()


def read_until(process: subprocess.Popen[str], holds: Any) -> tuple[int, ...]:
    """What the server tells, once that holds."""
    assert process.stdout is not None
    for line in process.stdout:
        told = tuple(int(each) for each in line.split())
        if holds(*told):
            return told
    raise AssertionError("The server ended")
