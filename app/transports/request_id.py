"""The id by which a request is found in the logs of all that had it: the client's, or one made where a line needs it.

No standard defines `x-request-id`; proxies such as Envoy and nginx send it, and expect it back. An id that is longer
than `MOST_BYTES`, or not printable ASCII without spaces, counts as none: an id goes into logs and replies as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from secrets import token_hex

REQUEST_ID = b"x-request-id"

#: Chosen: an id of 128 bits takes 36 letters, and proxies put some together.
MOST_BYTES = 128

_ID = re.compile(rb"[!-~]{1,%d}" % MOST_BYTES)


def checked(value: bytes) -> bytes:
    """A client's id; empty if it cannot be used."""
    return value if _ID.fullmatch(value) else b""


def id_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The client's id, of names in lower case; empty without one."""
    return next((checked(value) for name, value in headers if name == REQUEST_ID), b"")


def id_line(client_id: bytes) -> bytes:
    """The line of the id in the head of a reply of HTTP/1.1."""
    return b"%b: %b\r\n" % (REQUEST_ID, client_id)


def shown(client_id: bytes) -> str:
    """The id for a line of the log: the client's, or a new one."""
    return client_id.decode() or token_hex(8)
