"""The events of a connection, which tell what it received, and the errors that end a stream or the connection."""

from __future__ import annotations

from typing import NamedTuple

from app.transports.http2.frames import ErrorCode
from app.transports.http2.hpack import HeaderList
from app.transports.http2.stream import Stream


class Request(NamedTuple):
    """A request has begun; `ended`: it has no content. `headers.request` is what HTTP reads of it."""

    stream: Stream
    headers: HeaderList
    ended: bool


class Data(NamedTuple):
    """Content of a request, which may be empty if it ends it. `Sending.let_come` lets more of it come."""

    stream: Stream
    content: bytes
    ended: bool


class Reset(NamedTuple):
    """The stream is gone: the client, or an error of it, has reset it."""

    stream: Stream
    code: int


class Sent(NamedTuple):
    """The data of a stream were all taken for the socket."""

    stream: Stream


class PingAnswered(NamedTuple):
    """The client has answered a ping of ours."""

    content: bytes


Event = Request | Data | Reset | Sent | PingAnswered


class ConnectionFailed(Exception):
    """A connection error (section 5.4.1)."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFailed(Exception):
    """A stream error (section 5.4.2)."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__()
        self.code = code
