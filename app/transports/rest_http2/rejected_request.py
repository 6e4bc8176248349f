"""A request whose head cannot be read."""

from __future__ import annotations

from app.transports.http.replies import Fault
from app.transports.http2.stream import Stream
from app.transports.rest_http2.request import SHORT_BYTES, RestRequest
from app.transports.rest_http2.rest_connection import RestConnection


class RejectedRequest(RestRequest):
    """A rejected request: its error is sent when it has ended, is long, or does not come.

    An earlier reply would end the stream, and errors in the rest of the request would not be reported.
    """

    __slots__ = ("_fault",)

    def __init__(self, connection: RestConnection, stream: Stream, fault: Fault) -> None:
        super().__init__(connection, stream)
        self._fault = fault

    def data(self, content: bytes, ended: bool) -> None:
        self._came += len(content)
        if ended or self._came > SHORT_BYTES:
            self.reject(self._fault)

    def waits(self) -> None:
        self.reject(self._fault)
