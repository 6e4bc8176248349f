"""The first line of a response, by its status, and responses to requests that cannot be read."""

from __future__ import annotations

from http import HTTPStatus

from app.transports.http.replies import CLOSE, HttpReply, error_body

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def closing_reply(status: int, text: str, common: bytes) -> bytes:
    """A whole response with `{"error": text}`, after which the connection is closed.

    `common`: header lines of every reply.
    """
    more = (CLOSE,) if status != HTTPStatus.SERVICE_UNAVAILABLE else (CLOSE, (b"retry-after", b"1"))
    reply = HttpReply(error_body(text), status, more)
    return b"".join((STATUS_LINES[status], common, reply.head_lines(), b"\r\n", reply.body))
