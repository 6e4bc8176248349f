"""The errors of a call: whose fault it is, and whether a retry may help."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SHOWN_CHARS = 1000


class ServingError(Exception):
    """Base of every error of a call.

    Attributes:
        text: what went wrong; the server's own text if it answered.
        status: the HTTP status; None if there was no reply.
        retry_after_s: seconds that the server asks to wait (Retry-After); None if it does not say.
    """

    def __init__(self, text: str, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.retry_after_s = retry_after_s


class InvalidRequest(ServingError):
    """The caller's fault: the request does not fit the model, or is not allowed."""


class RequestTooLarge(InvalidRequest):
    """The caller's fault: more bytes or rows than the server takes."""


class Unsupported(InvalidRequest):
    """The caller's fault: the protocol cannot express this; another protocol may."""


class ModelNotFound(ServingError):
    """The caller's fault: no such model or version is served there."""


class Overloaded(ServingError):
    """The server accepts no request now: its queue is full, the model still loads, or it drains. Retried."""


class ConnectionFailed(ServingError):
    """No server was reached, or it closed the connection before it answered. Retried."""


class DeadlineExceeded(ServingError):
    """The call's time ended, here or at the server."""


class InferenceFailed(ServingError):
    """The model or the server failed on a valid request."""


class InvalidResponse(ServingError):
    """The reply does not follow the protocol; it may come from another kind of server."""


_KINDS: Mapping[int, type[ServingError]] = {
    404: ModelNotFound,
    408: DeadlineExceeded,
    413: RequestTooLarge,
    429: Overloaded,
    501: Unsupported,
    502: ConnectionFailed,  # from a proxy that reached no server
    503: Overloaded,
    504: DeadlineExceeded,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ServingError:
    """The error that a reply without success means."""
    kind = _KINDS.get(status) or {4: InvalidRequest, 5: InferenceFailed}.get(status // 100, InvalidResponse)
    return kind(_text(body) or f"The server answered {status}", status, _seconds(headers.get("retry-after", "")))


def _text(body: bytes) -> str:
    """The text of `{"error": text}`, which both protocols write; of other bodies, their beginning."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):
        return body.decode(errors="replace")[:_SHOWN_CHARS].strip()


def _seconds(retry_after: str) -> float | None:
    """Retry-After in seconds, from a number or a date (RFC 9110, section 10.2.3); None if it is neither."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
