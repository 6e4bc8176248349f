"""Replies that are ready at the same time are written one right after another.

A client process that gets them apart sleeps in between, and waking it costs more than the reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from app.core.inference import Buffer

logger = logging.getLogger(__name__)

_Written = tuple[asyncio.Transport, Sequence[Buffer], bool]


class ReplyBuffer:
    """Writes replies at once, except within `held`."""

    def __init__(self) -> None:
        self._held: list[_Written] | None = None

    def write(self, transport: asyncio.Transport, pieces: Sequence[Buffer], close: bool) -> None:
        """Writes the pieces of a reply; `close` closes the connection after them."""
        if self._held is None:
            _write(transport, pieces, close)
        else:
            self._held.append((transport, pieces, close))

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context in which writes are kept back, and made at its end."""
        held: list[_Written] = []
        self._held = held
        try:
            yield
        finally:
            self._held = None
            for transport, pieces, close in held:
                _write(transport, pieces, close)


def _write(transport: asyncio.Transport, pieces: Sequence[Buffer], close: bool) -> None:
    """Never raises: other replies are written after it."""
    try:
        if len(pieces) == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)
        if close:
            transport.close()
    except Exception:
        logger.exception("A reply could not be written; its connection is closed")
        transport.abort()
