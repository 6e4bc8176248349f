"""Bytes behind a request that is not answered yet (pipelining, RFC 9112, section 9.3.2)."""

from __future__ import annotations

import asyncio

#: They are kept in pieces of this many bytes (chosen): each request that begins in a piece copies the rest of it.
_PIECE_BYTES = 4096


class Pipelined:
    """Keeps them, and reads no more of the socket meanwhile.

    Attributes:
        pieces: in order of arrival.
    """

    __slots__ = ("_transport", "pieces")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.pieces: list[bytes] = []

    def keep(self, data: bytes) -> None:
        """Keeps what arrived last."""
        self.pieces += [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]
        self._transport.pause_reading()

    def keep_rest(self, data: bytes) -> None:
        """Keeps the bytes behind the request in the piece that was read last; they go before the other pieces."""
        later, self.pieces = self.pieces, []
        self.keep(data)
        self.pieces += later
