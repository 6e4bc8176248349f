"""A request that asks to go on as HTTP/2 without TLS (RFC 7540, section 3.2), as its head says it."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode

from app.transports.http.asgi import Header
from app.transports.http.connections.accepting_server import UpgradeRequest
from app.transports.http1.head_parser import HeadParser

_SETTINGS = b"http2-settings"

#: Fields of a request that asks for HTTP/2 that do not go on with it.
_OF_THE_CONNECTION = frozenset({b"connection", b"host", b"keep-alive", b"proxy-connection", b"te", _SETTINGS})


def upgrade_request(head: HeadParser) -> UpgradeRequest | None:
    """The same request in HTTP/2; None if it asks in another way than the RFC's, or its target is not a path."""
    settings = _settings_of(head)
    if settings is None or not head.target.startswith(b"/"):
        return None
    host = next((value for name, value in head.headers if name == b"host"), b"")
    pseudo: list[Header] = [(b":method", head.method), (b":scheme", b"http"), (b":path", head.target)]
    if host:
        pseudo.append((b":authority", host))
    fields = [(name, value.strip(b" \t")) for name, value in head.headers if name not in _OF_THE_CONNECTION]
    return UpgradeRequest(settings, (*pseudo, *fields), len(head.raw))


def _settings_of(head: HeadParser) -> bytes | None:
    """The payload of a frame SETTINGS; None if the request has not exactly one, or does not name it."""
    named = b",".join([value for name, value in head.headers if name == b"connection"]).lower().split(b",")
    given = [value for name, value in head.headers if name == _SETTINGS]
    if head.version != "1.1" or not {b"upgrade", _SETTINGS} <= {each.strip() for each in named} or len(given) != 1:
        return None
    try:
        payload = urlsafe_b64decode(given[0].rstrip(b"=") + b"=" * (-len(given[0].rstrip(b"=")) % 4))
    except binascii.Error:
        return None
    return payload if len(payload) % 6 == 0 else None
