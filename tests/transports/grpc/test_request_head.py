"""What is read of the head of a call."""

from __future__ import annotations

import pytest

from app.transports.grpc.request_head import GrpcHead, read_head
from app.transports.http2.hpack import Decoder, encode_fields
from app.transports.http2.request_fields import read_request


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
