"""The field lists of responses. They use only HPACK's static table, so that equal fields are equal bytes everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus

from app.transports.http.asgi import Header
from app.transports.http.server_timing import SERVER_TIMING
from app.transports.http2.hpack import encode_fields, literal, literal_name
from app.transports.request_id import REQUEST_ID

#: They would be of the connection (RFC 9113, section 8.2.2).
_OF_THE_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})

_STATUSES = {status.value: encode_fields([(b":status", b"%d" % status.value)]) for status in HTTPStatus}

#: 100 Continue (RFC 9110, section 10.1.1).
CONTINUE = _STATUSES[100]

_LENGTH = literal_name(b"content-length")


def fields(headers: Iterable[Header]) -> bytes:
    """The fields encoded, without those of a connection. Names are in lower case."""
    return b"".join([literal(name, value) for name, value in headers if name not in _OF_THE_CONNECTION])


def head(status: int, common: bytes, headers: Sequence[Header], timing: bytes = b"", request_id: bytes = b"") -> bytes:
    """The list of a response.

    Args:
        common: fields of every response, encoded.
        timing: the value of Server-Timing; empty without one.
        request_id: the client's, which goes back; empty without one.
    """
    block = _STATUSES[status] + common + fields(headers)
    if timing:
        block += literal(SERVER_TIMING, timing)
    return block + literal(REQUEST_ID, request_id) if request_id else block


def ok_fields(common: bytes, content_type: bytes, timing: bytes) -> bytes:
    """The beginning of a response with status 200, up to its Content-Length."""
    return _STATUSES[200] + common + literal(b"content-type", content_type) + literal(SERVER_TIMING, timing)


def with_length(start: bytes, length: int) -> bytes:
    """The list that began with `ok_fields`."""
    digits = b"%d" % length
    return b"%b%b%c%b" % (start, _LENGTH, len(digits), digits)
