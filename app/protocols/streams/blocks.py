"""Blocks of lines to blocks of replies, by way of the model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from app.batching.priority import BULK
from app.codecs.body_format import PredictBody
from app.core.errors import InvalidRequest, OutOfMemory, Overloaded, ServingError
from app.core.inference import DEFAULT_SIGNATURE, InferenceRequest
from app.core.interfaces import ServedModel
from app.protocols.streams.lines import Block
from app.protocols.streams.rows import read_rows, write_refusal, write_rows

logger = logging.getLogger(__name__)

#: Between two tries of a block that the server is too busy for; the pause doubles each time.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 1.0


class BlockPredictor:
    """Answers the blocks of one stream, each by a request of as many rows as it has lines.

    Args:
        resolve: finds the model, anew for each block: a stream outlives versions.
        asked: which signature, and which of its outputs.
        timeout_s: what each block has.
        clock: monotonic seconds, the same base as the batcher's.
    """

    def __init__(
        self, resolve: Callable[[], ServedModel], asked: PredictBody, timeout_s: float, clock: Callable[[], float]
    ) -> None:
        self._resolve = resolve
        self._asked = asked
        self._timeout_s = timeout_s
        self._clock = clock

    async def answer(self, block: Block) -> bytes:
        """A line for each, whatever becomes of it: `{"prediction": ...}` or `{"error": ...}`."""
        return await self._answer(block, self._clock() + self._timeout_s)

    async def _answer(self, block: Block, deadline_s: float) -> bytes:
        """A block that is rejected is halved until the guilty lines stand alone."""
        try:
            return await self._predict_in_time(block, deadline_s)
        except (InvalidRequest, OutOfMemory) as error:
            if len(block.lines) == 1:
                return write_refusal(block, str(error))
        except ServingError as error:
            return write_refusal(block, str(error))
        except Exception as error:
            logger.error("A bug answered lines of a stream", exc_info=error)
            return write_refusal(block, "Internal error")
        return b"".join(await asyncio.gather(*[self._answer(half, deadline_s) for half in block.halves()]))

    async def _predict_in_time(self, block: Block, deadline_s: float) -> bytes:
        """A queue without room is back-pressure: the block waits for it. Raises ServingError."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._predict(block, deadline_s)
            except Overloaded:
                if self._clock() + pause_s >= deadline_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _predict(self, block: Block, deadline_s: float) -> bytes:
        """Raises ServingError."""
        # From here to the batcher nothing awaits, so no version can be swapped in between.
        model = self._resolve()
        signature = model.signature(self._asked.signature_name or DEFAULT_SIGNATURE)
        if len(block.lines) > 1 and not signature.batchable:
            raise InvalidRequest(f"Signature {signature.name!r} takes one instance at a time")
        inputs, outputs = read_rows(block.lines, signature), self._asked.wanted(signature)
        response = await model.infer(InferenceRequest(inputs, signature.name, outputs, deadline_s, BULK))
        return write_rows(response.outputs, len(block.lines))
