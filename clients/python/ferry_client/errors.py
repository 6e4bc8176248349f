"""What can go wrong with a call, in the server's terms: whose fault it is, and whether a retry may help."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SHOWN_CHARS = 1000


class ServingError(Exception):
    """Base of every error of a call.

    Attributes:
        text: what went wrong, in the server's words where it answered.
        status: the HTTP status; None where no reply came.
        retry_after_s: how long the server asks to wait; None where it does not say.
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
    """The caller's fault: the protocol has no form for this; another one may have."""


class ModelNotFound(ServingError):
    """The caller's fault: no such model or version is served there."""


class Overloaded(ServingError):
    """The server takes nothing now: its queue is full, the model still loads, or it drains. Retried."""


class ConnectionFailed(ServingError):
    """No server could be reached, or it hung up before it had answered. Retried."""


class DeadlineExceeded(ServingError):
    """The call's time ran out, here or at the server."""


class InferenceFailed(ServingError):
    """The model or the server failed on a request that was in order."""


class InvalidResponse(ServingError):
    """The reply is not what the protocol says; perhaps it comes from another kind of server."""


_KINDS: Mapping[int, type[ServingError]] = {
    404: ModelNotFound,
    408: DeadlineExceeded,
    413: RequestTooLarge,
    429: Overloaded,
    501: Unsupported,
    # A proxy that reached no server.
    502: ConnectionFailed,
    503: Overloaded,
    504: DeadlineExceeded,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ServingError:
    """The error in a reply that is no success."""
    kind = _KINDS.get(status) or {4: InvalidRequest, 5: InferenceFailed}.get(status // 100, InvalidResponse)
    return kind(_text(body) or f"The server answered {status}", status, _seconds(headers.get("retry-after", "")))


def _text(body: bytes) -> str:
    """All protocols here write `{"error": text}`; a proxy may write anything."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):
        return body.decode(errors="replace")[:_SHOWN_CHARS].strip()


def _seconds(retry_after: str) -> float | None:
    """From either form of Retry-After: seconds, or a date."""
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
