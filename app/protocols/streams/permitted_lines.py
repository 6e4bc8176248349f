"""The permission to send lines of a stream: a line is checked and counted as a request is.

- A credential that was removed or has expired ends the stream with an error, after the lines before it.
- Each line counts for its caller's rate. A stream can wait, so lines that come too early are not rejected: they are
  read when they may come, and the client sends as slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from app.access.access import Permit
from app.core.errors import RateExceeded, ServingError
from app.protocols.streams.lines import Block


class PermittedLines:
    """The check of the lines of one stream.

    Args:
        permit: the caller's; None if the server needs no credential.
        denied: called with the error that ends the stream.
    """

    def __init__(self, permit: Permit | None = None, denied: Callable[[ServingError], None] = lambda _: None) -> None:
        self._permit = permit
        self._denied = denied

    async def parts(self, block: Block) -> AsyncGenerator[Block, None]:
        """The block, whole or in parts, each as soon as all of its lines may come.

        Raises:
            Unauthenticated, NotAllowed, IssuerUnknown: after the lines that were permitted.
        """
        begin = 0
        if self._permit is not None:
            for number in range(len(block.lines)):
                while (error := _refusal(self._permit)) is not None:
                    if number > begin:
                        yield block.part(begin, number)
                        begin = number
                    if not isinstance(error, RateExceeded):
                        self._denied(error)
                        raise error
                    await asyncio.sleep(error.retry_after_s or 0.0)
        yield block.part(begin, len(block.lines)) if begin else block


def _refusal(permit: Permit) -> ServingError | None:
    try:
        permit.use()
    except ServingError as error:
        return error
    return None
