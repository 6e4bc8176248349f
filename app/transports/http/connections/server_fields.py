"""The header fields that every response of a server has, encoded for one version of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.transports.http.asgi import Header


class ServerFields:
    """The encoded fields of a server, which are encoded anew when it has others: the date changes each second.

    Args:
        encode: encodes fields for a version of HTTP.
        own: fields before the server's.
    """

    __slots__ = ("_encode", "_encoded", "_of", "_own")

    def __init__(self, encode: Callable[[Sequence[Header]], bytes], own: Sequence[Header] = ()) -> None:
        self._encode = encode
        self._own = own
        self._of: Sequence[Header] = ()
        self._encoded = encode(own)

    def encoded(self, server_headers: Sequence[Header]) -> bytes:
        """`server_headers`: the server's now, a new object when they change."""
        if server_headers is not self._of:
            self._of = server_headers
            self._encoded = self._encode((*self._own, *server_headers))
        return self._encoded
