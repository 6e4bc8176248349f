"""What is read of the head of a call."""

from __future__ import annotations

import asyncio

import pytest

from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.request_head import GrpcHead, read_head
from app.transports.grpc.server import GrpcServer
from app.transports.http2.hpack import Decoder, encode_fields
from app.transports.http2.request_fields import read_request
from tests.transports.grpc.http2_frames import HEADERS, Http2Client, grpc_call


def head_of(*fields: tuple[bytes, bytes]) -> GrpcHead:
    usual = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a/B"), (b"content-type", b"application/grpc")]
    headers = Decoder().decode(encode_fields([*usual, *fields]))
    headers.request = read_request(headers)
    return read_head(headers)


def test_binary_metadata_may_be_joined_by_a_proxy() -> None:
    assert head_of((b"a-bin", b"YQ==,YWI,,YWJj")).fault == ""


@pytest.mark.parametrize("value", [b"Y", b"YWI==", b"Y W I", b"\xff\xff\xff\xff", b"YWI-"])
def test_binary_metadata_that_are_not_base64_are_told(value: bytes) -> None:
    assert head_of((b"a-bin", value)).fault == "The metadata a-bin are not base64"


# --- by a live server ---

CHECK = "/grpc.health.v1.Health/Check"


async def last_fields(*headers: tuple[str, str]) -> dict[bytes, bytes]:
    """Of the head and the end of an answer to a call with these headers."""

    def ask(port: int) -> dict[bytes, bytes]:
        with Http2Client(port) as client:
            client.send(grpc_call(1, CHECK, b"", headers))
            decoder, found = Decoder(), dict[bytes, bytes]()
            while b"grpc-status" not in found:
                found.update(decoder.decode(client.wait_for(lambda got: got.kind == HEADERS).payload).fields)
            return found

    server = GrpcServer(GrpcOptions("127.0.0.1", 0), [], lambda: True)
    await server.start()
    found = await asyncio.to_thread(ask, server.port)
    await server.stop(0)
    return found


@pytest.mark.parametrize(("value", "code"), [("YWI=", b"0"), ("YWI", b"0"), ("YWI=,YQ,", b"0"), ("Y", b"3")])
def test_binary_metadata_are_base64_with_padding_or_without(value: str, code: bytes) -> None:
    assert asyncio.run(last_fields(("a-bin", value)))[b"grpc-status"] == code


def test_metadata_that_are_no_text_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They may hold a credential with a byte too many."""
    assert asyncio.run(last_fields(("x-api-key", "secret\udcff")))[b"grpc-status"] == b"0"
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text
