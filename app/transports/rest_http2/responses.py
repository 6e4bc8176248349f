"""The field lists of responses. They use only HPACK's static table, so that equal fields are equal bytes everywhere.

Strings are not compressed by Huffman's code: that takes longer than it saves on a reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus

from app.transports.http.asgi import Header
from app.transports.http.replies import HttpReply, error_body
from app.transports.http.server_timing import SERVER_TIMING
from app.transports.http2.hpack import STATIC_TABLE, encode_fields, encode_number

#: They would be of the connection (RFC 9113, section 8.2.2).
_OF_THE_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})

_STATUSES = {status.value: encode_fields([(b":status", b"%d" % status.value)]) for status in HTTPStatus}

#: 100 Continue (RFC 9110, section 10.1.1).
CONTINUE = _STATUSES[100]

_INDEXES = {name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE, 1)))}


@lru_cache(maxsize=256)
def _name(name: bytes) -> bytes:
    """The beginning of a literal that enters no table (RFC 7541, section 6.2.2)."""
    index = _INDEXES.get(name)
    if index is not None:
        return encode_number(index, 0x0F, 0)
    return b"\0" + encode_number(len(name), 0x7F, 0) + name


_LENGTH = _name(b"content-length")


def field(name: bytes, value: bytes) -> bytes:
    size = len(value)
    if size < 0x7F:
        return b"%b%c%b" % (_name(name), size, value)
    return _name(name) + encode_number(size, 0x7F, 0) + value


def fields(headers: Iterable[Header]) -> bytes:
    """Without those of a connection. Names in lower case."""
    return b"".join([field(name, value) for name, value in headers if name not in _OF_THE_CONNECTION])


def head(status: int, common: bytes, headers: Sequence[Header], timing: bytes = b"") -> bytes:
    """The list of a response; `common` are fields of every response, encoded, `timing` the value of Server-Timing."""
    block = _STATUSES[status] + common + fields(headers)
    return block + field(SERVER_TIMING, timing) if timing else block


def first_fields(common: bytes, content_type: bytes, timing: bytes) -> bytes:
    """What a response with status 200 begins with, up to its Content-Length."""
    return _STATUSES[200] + common + field(b"content-type", content_type) + field(SERVER_TIMING, timing)


def with_length(start: bytes, length: int) -> bytes:
    """The list that began with `first_fields`."""
    digits = b"%d" % length
    return b"%b%b%c%b" % (start, _LENGTH, len(digits), digits)


def rejection(status: int, text: str, common: bytes) -> tuple[bytes, bytes]:
    """The response with `{"error": text}`: its field list and its content."""
    more = ((b"retry-after", b"1"),) if status == HTTPStatus.SERVICE_UNAVAILABLE else ()
    reply = HttpReply(error_body(text), status, more)
    return head(status, common, reply.head()), reply.body
