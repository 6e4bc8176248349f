"""The field lists of gRPC's answers. They use only HPACK's static table, so that most are made once.

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from app.transports.grpc.incoming.messages import ENCODINGS, PREFIX
from app.transports.http2.hpack import Field, encode_fields
from app.transports.request_id import REQUEST_ID

_KIND: Field = (b"content-type", b"application/grpc")

#: The head of a reply, and the trailers of a successful one.
HEAD = encode_fields([(b":status", b"200"), _KIND, (b"grpc-accept-encoding", ENCODINGS)])
OK = encode_fields([(b"grpc-status", b"0")])

#: Bytes of a status text that are percent-encoded: all but printable ASCII, and "%".
_NOT_PLAIN = re.compile(rb"[^ -$&-~]")

_TEXTS = {405: "This port serves gRPC, whose requests are POST", 415: "This port serves gRPC: application/grpc"}


def prefixed(message: bytes) -> bytes:
    """A message with its prefix, as content of DATA frames."""
    return PREFIX.pack(0, len(message)) + message


def head(client_id: bytes) -> bytes:
    """The head of a reply, with the client's x-request-id if there is one."""
    return HEAD + encode_fields([(REQUEST_ID, client_id)]) if client_id else HEAD


def trailers(code: int, text: str, metadata: Iterable[tuple[str, str]] = ()) -> bytes:
    """The trailers of a reply whose head was sent."""
    return encode_fields(_ending(code, text, metadata))


def only_trailers(code: int, text: str, metadata: Iterable[tuple[str, str]] = ()) -> bytes:
    """A reply without messages: head and trailers in one list."""
    return HEAD + encode_fields(_ending(code, text, metadata))


def _ending(code: int, text: str, metadata: Iterable[tuple[str, str]]) -> Sequence[Field]:
    message = [(b"grpc-message", percent_encoded(text))] if text else []
    return [(b"grpc-status", b"%d" % code), *message, *[(name.encode(), value.encode()) for name, value in metadata]]


def percent_encoded(text: str) -> bytes:
    return _NOT_PLAIN.sub(lambda byte: b"%%%02X" % byte[0][0], text.encode(errors="backslashreplace"))


def http_error(status: int) -> tuple[bytes, bytes]:
    """The reply to a request that is no gRPC call: field list and content."""
    text = _TEXTS[status].encode()
    more = [(b"allow", b"POST")] if status == 405 else []
    fields = [(b":status", b"%d" % status), (b"content-type", b"text/plain; charset=utf-8"), *more]
    return encode_fields([*fields, (b"content-length", b"%d" % len(text))]), text
