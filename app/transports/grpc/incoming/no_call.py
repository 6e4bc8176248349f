"""A request that is no call of gRPC, and gets an error of HTTP."""

from __future__ import annotations

from app.transports.grpc.incoming import replies
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream

#: A request of more bytes is answered before its end. Chosen: a quarter of the window that a stream has at first.
_MOST_BYTES = 16 * 1024


class NoCall:
    """The owner of a stream that is no gRPC call. It answers when the request has ended, is long, or does not come.

    An earlier reply would end the stream, and errors in the rest of the request would not be reported.
    """

    def __init__(self, connection: Http2Protocol, stream: Stream, status: int) -> None:
        self._connection = connection
        self._stream = stream
        self._status = status
        self._received = 0

    def data(self, content: bytes, ended: bool) -> None:
        self._received += len(content)
        if ended or self._received > _MOST_BYTES:
            self.waits()

    def waits(self) -> None:
        if not self._stream.local_closed:
            block, text = replies.http_error(self._status)
            self._connection.connection.send_headers(self._stream, block)
            self._connection.connection.send_data(self._stream, text, end=True)

    def gone(self) -> None:
        """Nothing is kept for it."""

    def sent(self) -> None:
        """Nothing follows."""
