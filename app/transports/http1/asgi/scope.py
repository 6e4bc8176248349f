"""What an application is told of a request before its body: the scope of ASGI."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import unquote

from app.transports.http.asgi import Scope
from app.transports.http1.head_parser import HeadParser

#: The path and the query of a target, behind a scheme and an authority if it has the absolute form (RFC 9112, 3.2).
_TARGET = re.compile(rb"(?:[A-Za-z]+://[^/?#]*)?([^?#]*)(?:\?([^#]*))?")


def scope_of(head: HeadParser, transport: asyncio.Transport, state: dict[str, Any]) -> Scope:
    """The scope of a request that came by the transport. `state` is that of the application's lifespan."""
    raw_path, query = _path_and_query(head.url)
    headers = [*head.headers, (b"content-length", b"%d" % head.length)] if head.sized else head.headers
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": head.version,
        "method": head.method.decode(),
        "scheme": "http" if transport.get_extra_info("ssl_object") is None else "https",
        "path": unquote(raw_path.decode()),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": address_of(transport, "peername"),
        "server": address_of(transport, "sockname"),
        "state": state.copy(),
    }


def _path_and_query(target: bytes) -> tuple[bytes, bytes]:
    found = _TARGET.match(target)
    assert found is not None  # noqa: S101 - it matches anything
    path, query = found.groups(b"")
    return path or b"/", query


def address_of(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    """The address and the port of the client ("peername") or of the server ("sockname"); None on a Unix socket."""
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
