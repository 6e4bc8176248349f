"""Bodies and replies of every API over HTTP: reading a body within limits, sending a reply, errors as replies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple, Protocol

import orjson

from app.access.access import Access
from app.codecs.charsets import in_utf8, text_charset
from app.codecs.errors import BodyTooLarge, NotAcceptable, UnsupportedMediaType
from app.core import errors
from app.core.errors import ServingError
from app.core.inference import Buffer
from app.transports.http.asgi import Header, Receive, Send
from app.transports.http.compression import Inflater, UnsupportedEncoding
from app.transports.memory.client_memory import ClientMemory
from app.transports.request_caller import CallerRule
from app.transports.request_trace import Tracing

#: A shorter body is inflated to this many bytes on the event loop, and further in a thread; a longer body is inflated
#: in a thread. Chosen.
_SHORT_BYTES, _INFLATED_AT_ONCE = 8 * 1024, 64 * 1024

#: Where memory is limited, it is reserved for this many inflated bytes at a time. Chosen.
_RESERVED_AT_ONCE = 2 * 1024 * 1024

#: Text of this many bytes is converted to UTF-8 in a thread. Chosen: shorter ones take less than 1 ms.
_LONG_TEXT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How protocols over HTTP read and answer requests.

    `max_body_bytes` limits the inflated body.

    `request_timeout_ms` runs from arrival to reply. `callers` tells callers apart, so that none takes the room of
    others; None if nothing does. `tracing` decides which requests are traced; None if none is. `access` says which
    callers may send what; None if every caller may send all. `memory` is for what bodies are inflated to.
    """

    max_body_bytes: int
    request_timeout_ms: float
    callers: CallerRule | None = None
    tracing: Tracing | None = None
    access: Access | None = None
    memory: ClientMemory = field(default_factory=ClientMemory)

    def most_bytes(self, growth: float) -> int:
        """The most bytes of a line, or of unpacked content: `max_body_bytes`, or less in a small container."""
        if self.memory.room.unlimited:
            return self.max_body_bytes
        return int(min(self.max_body_bytes, self.memory.room.largest(growth)))


class ClientGone(Exception):
    """The client disconnected, so no reply can be sent."""


#: The status of each error class; a subclass that is not listed has that of its nearest base.
#: OutOfMemory is 503, not 500: the device has too little memory now, and the same request may succeed later.
CODES: Mapping[type[ServingError], int] = {
    errors.InvalidRequest: 400,
    errors.SignatureNotFound: 400,
    errors.PreconditionFailed: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotAllowed: 403,
    errors.RateExceeded: 429,
    errors.IssuerUnknown: 503,
    errors.RequestTooLarge: 413,
    errors.BodyOverMemory: 413,
    UnsupportedEncoding: 415,
    UnsupportedMediaType: 415,
    NotAcceptable: 406,
    errors.Unsupported: 501,
    errors.ModelNotFound: 404,
    errors.ModelNotReady: 503,
    errors.Overloaded: 503,
    errors.NoMemoryLeft: 503,
    errors.WouldBeLate: 503,
    errors.DeadlineExceeded: 504,
    errors.InferenceFailed: 500,
    errors.ModelUnusable: 500,
    errors.OutOfMemory: 503,
    errors.FilesUnreadable: 503,
    errors.ShuttingDown: 503,
}

#: nginx's code for a request whose client disconnected, and TensorFlow Serving's for a cancelled one.
CLIENT_GONE = "499"

CLOSE: Header = (b"connection", b"close")

#: WWW-Authenticate for a missing credential, and for an invalid one (RFC 9110, section 11.6.1; RFC 6750, section 3).
_CHALLENGE = b'Bearer realm="ferry"'
_INVALID_TOKEN = _CHALLENGE + b', error="invalid_token"'

#: Replies up to this size are joined and sent as one piece: a copy costs less than a second write (chosen).
_JOINED_BYTES = 64 * 1024


class Fault(NamedTuple):
    """An error reply to a request that cannot be read, or is not served; nothing behind it is read."""

    status: int
    text: str


LATE = Fault(408, "The request did not arrive in time")
UNKNOWN_METHOD = Fault(501, "The method of the request is not known here")


class Sendable(Protocol):
    """A whole reply, to be sent by ASGI (`send_reply`) or by a connection of ours (http1/http1_connection.py)."""

    @property
    def status(self) -> int: ...
    @property
    def pieces(self) -> Sequence[Buffer]:
        """The body, at least one piece."""

    def head(self) -> Sequence[Header]:
        """The headers, names in lower case; Content-Length is among them."""

    def head_lines(self) -> bytes:
        """The same as lines of HTTP/1.1."""


@dataclass(slots=True)  # freezing would cost each request as much as reading its headers
class HttpReply:
    """A reply with its body in memory; `headers` are sent beside Content-Type and Content-Length."""

    body: bytes
    status: int = 200
    headers: tuple[Header, ...] = ()
    content_type: bytes = b"application/json"

    @property
    def pieces(self) -> Sequence[Buffer]:
        return (self.body,)

    def head(self) -> Sequence[Header]:
        return (b"content-type", self.content_type), (b"content-length", b"%d" % len(self.body)), *self.headers

    def head_lines(self) -> bytes:
        lines = b"content-type: %b\r\ncontent-length: %d\r\n" % (self.content_type, len(self.body))
        return lines + header_lines(self.headers) if self.headers else lines


def header_lines(headers: Iterable[Header]) -> bytes:
    """Headers as lines of HTTP/1.1, each with its line end."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def is_large(pieces: Sequence[Buffer]) -> bool:
    """Should the pieces be written without joining them? Joining small ones costs less than one more packet."""
    return sum(map(len, pieces)) > _JOINED_BYTES


def content_bytes(reply: Sendable) -> int:
    """The bytes of a reply's body."""
    return sum(map(len, reply.pieces))


async def send_reply(reply: Sendable, send: Send, more: Sequence[Header] = ()) -> None:
    """Sends a reply by ASGI; `more` are headers beside the reply's own."""
    await send({"type": "http.response.start", "status": reply.status, "headers": [*reply.head(), *more]})
    *pieces, last = reply.pieces if is_large(reply.pieces) else [b"".join(reply.pieces)]
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": last})


def code_of(kind: type[ServingError]) -> int:
    """The HTTP status of an error class or of its nearest listed base."""
    return next((CODES[base] for base in kind.__mro__ if base in CODES), 500)


def error_reply(error: ServingError) -> HttpReply:
    """`{"error": text}`. 503 and 429 have a Retry-After; a connection that cannot be used again is closed."""
    status = code_of(type(error))
    headers: list[Header] = []
    if status == 401:
        headers.append((b"www-authenticate", _CHALLENGE if error.denied == "missing" else _INVALID_TOKEN))
    if status in {429, 503}:
        headers.append((b"retry-after", str(math.ceil(error.retry_after_s or 1)).encode()))
    if isinstance(error, errors.ShuttingDown | errors.NoMemoryLeft | errors.BodyOverMemory | BodyTooLarge):
        headers.append(CLOSE)
    return HttpReply(error_body(str(error)), status, tuple(headers))


def error_body(text: str) -> bytes:
    return orjson.dumps({"error": text.encode(errors="backslashreplace").decode()})


def fault_of(error: ServingError) -> Fault:
    """The fault of a request that is rejected with this error before it is read."""
    return Fault(code_of(type(error)), str(error))


def fault_reply(fault: Fault, *headers: Header) -> HttpReply:
    """`{"error": text}`, with these headers. 503 has a Retry-After."""
    retry = ((b"retry-after", b"1"),) if fault.status == HTTPStatus.SERVICE_UNAVAILABLE else ()
    return HttpReply(error_body(fault.text), fault.status, (*headers, *retry))


def internal_error() -> HttpReply:
    """The reply for a bug of ours: it has no details."""
    return HttpReply(error_body("Internal error"), 500)


async def read_body(
    headers: Sequence[Header],
    receive: Receive,
    limit: int,
    reserve: Callable[[int], None] | None = None,
) -> bytes:
    """The whole body, inflated; text in UTF-8. `reserve` is called before it is inflated to more bytes, and may raise.

    Raises:
        BodyTooLarge: more than `limit` bytes announced, received, inflated or in UTF-8, or inflated to too many
            times its size.
        InvalidRequest, UnsupportedEncoding: it cannot be inflated, or is not in the charset that is named.
        UnsupportedMediaType: that charset is not read.
        ClientGone: the client disconnected before the end.
    """
    named = dict(reversed(headers))  # the first of several
    announced = named.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit:
        raise body_too_large(limit)
    charset = text_charset(named.get(b"content-type"))
    body = await _receive_all(receive, limit)
    encoding = named.get(b"content-encoding")
    if encoding is not None:
        body = await _inflated(body, Inflater(encoding.decode("latin-1")), limit, reserve)
    if not charset or (charset == "latin-1" and body.isascii()):
        return body
    if len(body) < _LONG_TEXT_BYTES:
        return _converted(body, charset, limit)
    return await asyncio.to_thread(_converted, body, charset, limit)


def _converted(body: bytes, charset: str, limit: int) -> bytes:
    """The text in UTF-8. Raises BodyTooLarge, InvalidRequest."""
    converted = _Pieces(in_utf8(body, charset), limit)
    converted.take(limit)
    return b"".join(converted.done)


async def _receive_all(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise body_too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _inflated(body: bytes, inflater: Inflater, limit: int, reserve: Callable[[int], None] | None = None) -> bytes:
    """Stops at `limit` bytes, however large the inflated body would be."""
    inflation = _Pieces(inflater.pieces(body), limit)
    if len(body) >= _SHORT_BYTES or not inflation.take(_INFLATED_AT_ONCE):
        step = _RESERVED_AT_ONCE if reserve else limit
        whole = False
        while not whole:
            if reserve:
                reserve(min(limit, inflation.size + step))
            whole = await asyncio.to_thread(inflation.take, inflation.size + step)
    inflater.finish()
    return b"".join(inflation.done)


class _Pieces:
    """A body as it is inflated or converted, on the event loop or in a thread; at most `limit` bytes."""

    def __init__(self, pieces: Iterator[bytes], limit: int) -> None:
        self.done: list[bytes] = []
        self.size = 0
        self._pieces = pieces
        self._limit = limit

    def take(self, up_to: int) -> bool:
        """Makes up to this many bytes, and one piece more. True if the body is whole. Raises BodyTooLarge."""
        for piece in self._pieces:
            self.done.append(piece)
            self.size += len(piece)
            if self.size > self._limit:
                raise body_too_large(self._limit)
            if self.size > up_to:
                return False
        return True


def body_too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than max_body_bytes, {limit} bytes")
