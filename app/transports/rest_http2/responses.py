"""The field lists of responses. They use only HPACK's static table, so that equal fields are equal bytes everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus

from app.transports.http.asgi import Header
from app.transports.http.replies import HttpReply, error_body
from app.transports.http.server_timing import SERVER_TIMING
from app.transports.http2.hpack import encode_fields, literal, literal_name

#: They would be of the connection (RFC 9113, section 8.2.2).
_OF_THE_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})

_STATUSES = {status.value: encode_fields([(b":status", b"%d" % status.value)]) for status in HTTPStatus}

#: 100 Continue (RFC 9110, section 10.1.1).
CONTINUE = _STATUSES[100]

_LENGTH = literal_name(b"content-length")


def fields(headers: Iterable[Header]) -> bytes:
    """Without those of a connection. Names in lower case."""
    return b"".join([literal(name, value) for name, value in headers if name not in _OF_THE_CONNECTION])


def head(status: int, common: bytes, headers: Sequence[Header], timing: bytes = b"") -> bytes:
    """The list of a response; `common` are fields of every response, encoded, `timing` the value of Server-Timing."""
    block = _STATUSES[status] + common + fields(headers)
    return block + literal(SERVER_TIMING, timing) if timing else block


def ok_fields(common: bytes, content_type: bytes, timing: bytes) -> bytes:
    """What a response with status 200 begins with, up to its Content-Length."""
    return _STATUSES[200] + common + literal(b"content-type", content_type) + literal(SERVER_TIMING, timing)


def with_length(start: bytes, length: int) -> bytes:
    """The list that began with `ok_fields`."""
    digits = b"%d" % length
    return b"%b%b%c%b" % (start, _LENGTH, len(digits), digits)


def rejection(status: int, text: str, common: bytes) -> tuple[bytes, bytes]:
    """The response with `{"error": text}`: its field list and its content."""
    more = ((b"retry-after", b"1"),) if status == HTTPStatus.SERVICE_UNAVAILABLE else ()
    reply = HttpReply(error_body(text), status, more)
    return head(status, common, reply.head()), reply.body
