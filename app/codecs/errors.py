"""Errors of bodies, beside the errors of `app.core.errors`."""

from __future__ import annotations

from app.core.errors import InvalidRequest, RequestTooLarge


class BodyTooLarge(RequestTooLarge):
    """The caller's fault: the body exceeds the limit. The rest of it is not read."""


class NotParsed(InvalidRequest):
    """The caller's fault: the bytes are not a message of the type that the method takes."""


class UnsupportedMediaType(InvalidRequest):
    """The caller's fault: the Content-Type or Content-Encoding is not supported."""


class NotAcceptable(InvalidRequest):
    """The caller's fault: the Accept header allows no format that the reply can have."""
