"""Metadata both ways, with those that are binary; on both engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.http2.hpack import Decoder
from tests.transports.grpc.http2_frames import HEADERS, Http2Client, grpc_call

#: On both engines.
pytestmark = pytest.mark.usefixtures("grpc_engine")

#: Of each length of base64's padding; all bytes.
BINARY = [("a-bin", b""), ("b-bin", b"\0"), ("c-bin", b"\xff\xfe"), ("d-bin", b"abc"), ("e-bin", bytes(range(256)))]
PLAIN = [("x-plain", "one"), ("x-plain", "two")]


async def echo(content: bytes, context: Any) -> bytes:
    """Sends the metadata back, in the head and at the end."""
    got = [(name, value) for name, value in context.invocation_metadata() if name == "x-plain" or name.endswith("-bin")]
    await context.send_initial_metadata(got)
    context.set_trailing_metadata([*got, ("x-last", "end")])
    return content


async def refuse(content: bytes, context: Any) -> bytes:
    context.set_trailing_metadata(BINARY)
    await context.abort(grpc.StatusCode.DATA_LOSS, "lost")
    return content


def with_server(scenario: Callable[[int], Awaitable[None]]) -> None:
    methods = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
    }

    async def main() -> None:
        handler = grpc.method_handlers_generic_handler("test.Metadata", methods)
        server = GrpcServer(GrpcOptions("127.0.0.1", 0), [handler], lambda: True)
        await server.start()
        await scenario(server.port)
        await server.stop(0)

    asyncio.run(main())


def of(metadata: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in metadata if name.startswith("x-") or name.endswith("-bin")]


def test_metadata_go_there_and_back() -> None:
    async def scenario(port: int) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/test.Metadata/Echo")(b"", metadata=[*PLAIN, *BINARY])
            assert sorted(of(await call.initial_metadata())) == sorted([*PLAIN, *BINARY])
            assert sorted(of(await call.trailing_metadata())) == sorted([*PLAIN, *BINARY, ("x-last", "end")])
            assert await call.code() is grpc.StatusCode.OK

            refused = channel.unary_unary("/test.Metadata/Refuse")(b"")
            assert await refused.code() is grpc.StatusCode.DATA_LOSS
            assert of(await refused.trailing_metadata()) == BINARY

    with_server(scenario)


def last_fields(port: int, *headers: tuple[str, str]) -> dict[bytes, bytes]:
    """Of the head and the end of an answer to a call with these headers."""
    with Http2Client(port) as client:
        client.send(grpc_call(1, "/test.Metadata/Echo", b"", headers))
        decoder, found = Decoder(), {}
        while b"grpc-status" not in found:
            found.update(decoder.decode(client.wait_for(lambda got: got.kind == HEADERS).payload).fields)
        return found


@pytest.mark.parametrize("value", ["YWI=", "YWI"])
def test_binary_metadata_come_with_padding_or_without(value: str) -> None:
    async def scenario(port: int) -> None:
        got = await asyncio.to_thread(last_fields, port, ("a-bin", value))
        assert got[b"a-bin"] == b"YWI"

    with_server(scenario)


def test_metadata_that_are_no_text_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They may hold a credential with a byte too many."""

    async def scenario(port: int) -> None:
        got = await asyncio.to_thread(last_fields, port, ("x-api-key", "secret\udcff"))
        assert got[b"grpc-status"] == b"0"

    with_server(scenario)
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("grpc_engine", ["aio"], indirect=True)
def test_who_leaves_before_the_answer_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """grpc.aio logs a traceback where its core cannot send the end of a call, as the client has gone."""

    async def scenario(_: int) -> None:
        library = logging.getLogger("grpc._cython.cygrpc")
        library.error("ExecuteBatchError raised in core by servicer method [%s]", "/test.Metadata/Refuse")
        library.error("Something else")

    with_server(scenario)
    told = [record.getMessage() for record in caplog.records if record.name == "grpc._cython.cygrpc"]
    assert told == ["Something else"]
