"""NEW."""

from __future__ import annotations

from app.core.errors import (
    InvalidRequest,
    RequestTooLarge,
)


class BodyTooLarge(RequestTooLarge):
    """The caller's fault: the body is beyond the limit, and the rest of it is not read."""


class UnsupportedMediaType(InvalidRequest):
    """The caller's fault: a Content-Type that is not read here."""


class NotAcceptable(InvalidRequest):
    """The caller's fault: no reply to this request has a form that its Accept allows."""
