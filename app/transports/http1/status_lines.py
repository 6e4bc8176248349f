"""The first line of a response, by its status, and responses to requests that cannot be read."""

from __future__ import annotations

from http import HTTPStatus

from app.transports.http.replies import CLOSE, Fault, fault_reply

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def closing_reply(fault: Fault, common: bytes) -> bytes:
    """A whole response with `{"error": text}`, after which the connection is closed.

    `common`: header lines of every reply.
    """
    reply = fault_reply(fault, CLOSE)
    return b"".join((STATUS_LINES[fault.status], common, reply.head_lines(), b"\r\n", reply.body))
