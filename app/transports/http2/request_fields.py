"""Which field lists are a request, and what HTTP itself reads of them (RFC 9113, sections 8.1 to 8.3).

Other lists are malformed: a stream error of type PROTOCOL_ERROR (section 8.1.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.transports.http2.events import StreamFailed
from app.transports.http2.frames import ErrorCode
from app.transports.http2.hpack import Field, HeaderList

#: Section 8.2.1: tokens without upper case; a value has no NUL, CR or LF, and no space at its ends.
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?")

_PSEUDO = {b":method", b":scheme", b":path", b":authority"}

#: Section 8.2.2.
_OF_THE_CONNECTION = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}

#: A length of more digits than this is no request's.
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The fields of a request as HTTP reads them; `fields` are without the pseudo-header fields.

    content_length: -1 if none is given.
    """

    method: bytes
    path: bytes
    authority: bytes
    content_length: int
    fields: tuple[Field, ...]


def read_request(headers: HeaderList) -> RequestFields:
    """The method, the path and the fields of a request. Raises StreamFailed: it is malformed (section 8.3.1)."""
    pseudo: dict[bytes, bytes] = {}
    at = 0
    for name, value in headers.fields:
        if not name.startswith(b":"):
            break
        if name not in _PSEUDO or name in pseudo:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR)  # an unknown pseudo-header field, or one that is given twice
        pseudo[name] = value
        at += 1
    fields = headers.fields[at:]
    length = check_fields(fields)
    method = pseudo.get(b":method")
    if method == b"CONNECT" and not headers.too_long:  # section 8.5
        if pseudo.keys() != {b":method", b":authority"}:
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR)  # CONNECT has a :method and an :authority alone
    elif not (method and pseudo.get(b":scheme") and pseudo.get(b":path")) and not headers.too_long:
        raise StreamFailed(ErrorCode.PROTOCOL_ERROR)  # a request without :method, :scheme or :path
    return RequestFields(method or b"", pseudo.get(b":path", b""), pseudo.get(b":authority", b""), length, fields)


def check_fields(fields: tuple[Field, ...]) -> int:
    """The length of the content, -1 if none is given. No field may be a pseudo-header field. Raises StreamFailed."""
    length = -1
    for name, value in fields:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR)  # forbidden characters, or a pseudo-header field behind
        if name in _OF_THE_CONNECTION or (name == b"te" and value != b"trailers"):
            raise StreamFailed(ErrorCode.PROTOCOL_ERROR)  # a field that is only for connections of HTTP/1.1
        if name == b"content-length":
            if not value.isdigit() or len(value) > _MOST_DIGITS or length not in (-1, int(value)):
                raise StreamFailed(ErrorCode.PROTOCOL_ERROR)  # content-length is no number
            length = int(value)
    return length
