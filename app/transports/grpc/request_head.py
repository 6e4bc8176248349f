"""What gRPC reads of the fields of a request: the method, the time that is left, metadata.

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import base64
import binascii

from app.access.access import Permit
from app.transports.http2.hpack import Field, HeaderList
from app.transports.request_id import id_in
from app.transports.request_priority import PRIORITY_HEADER
from app.transports.trace_context import ParentSpan, parent_span

#: grpc-timeout: at most eight digits and a unit.
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MOST_DIGITS = 8


class GrpcHead:
    """The head of a call. Equal ones of a connection are one object.

    Attributes:
        status: the status of HTTP, if it is no call of gRPC at all; 0 otherwise.
        path: the method's, such as /package.Service/Method.
        timeout_s: the client's time-out, from the beginning of the call; None without one.
        encoding: the encoding of messages that are compressed.
        priority: the priority in the metadata, not read; None without one.
        long_bytes: the memory that the head takes, if that is much; else 0.
        request_id: the client's; empty without one.
        fault: why the call is rejected, as the caller is told; empty if it is not.
        fields: all fields but the pseudo-header fields; names in lower case.
        permit: what the caller's credential permits; None where none is needed, or before that is decided.
    """

    __slots__ = (
        "encoding", "fault", "fields", "long_bytes", "path", "permit", "priority", "request_id", "status", "timeout_s",
    )  # fmt: skip

    def __init__(self, headers: HeaderList) -> None:
        # 1. What no field says.
        request = headers.request
        self.fields: tuple[Field, ...] = request.fields
        self.path: str = request.path.decode("latin-1")
        self.status = 0
        self.timeout_s: float | None = None
        self.encoding = b"identity"
        self.priority: str | None = None
        self.long_bytes = headers.long_bytes
        self.request_id = id_in(self.fields)
        self.fault = ""
        self.permit: Permit | None = None
        if request.method != b"POST":
            self.status = 405

        # 2. The fields that mean something to gRPC.
        kind = b""
        for name, value in self.fields:
            if name == b"grpc-timeout":
                self._read_timeout(value)
            elif name == b"content-type":
                kind = value
            elif name == b"grpc-encoding":
                self.encoding = value
            elif name.endswith(b"-bin"):
                self._check_binary(name, value)
            elif name == PRIORITY_HEADER:
                self.priority = value.decode("latin-1") if self.priority is None else self.priority
        if not kind.startswith(b"application/grpc") or kind[16:17] not in {b"", b"+", b";"}:
            self.status = self.status or 415

    def _read_timeout(self, value: bytes) -> None:
        digits, unit = value[:-1], _UNITS.get(value[-1:])
        if unit is None or not digits.isdigit() or len(digits) > _MOST_DIGITS:
            self.fault = "grpc-timeout must be at most eight digits and one of H, M, S, m, u and n"
        else:
            self.timeout_s = int(digits) * unit

    def _check_binary(self, name: bytes, value: bytes) -> None:
        """A proxy may have joined several by commas; with padding or without."""
        try:
            for each in value.split(b","):
                base64.b64decode(each.strip() + b"=" * (-len(each.strip()) % 4), validate=True)
        except binascii.Error:
            self.fault = f"The metadata {name.decode()} are not base64"

    @property
    def parent(self) -> ParentSpan | None:
        """The caller's span."""
        return parent_span(self.fields)

    def header(self, name: bytes) -> bytes | None:
        """The first value of a field."""
        return next((value for each, value in self.fields if each == name), None)

    def __repr__(self) -> str:
        return f"<GrpcHead {self.path}>"


def read_head(headers: HeaderList) -> GrpcHead:
    head: GrpcHead | None = headers.meaning
    if head is None:
        head = headers.meaning = GrpcHead(headers)
    return head
