"""Blocks of lines to blocks of replies: one request to the model for each block, or more where it is halved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from app.batching.priority import BULK
from app.codecs.at_once import MOST_VALUES, TakesLong
from app.codecs.body_format import PredictBody
from app.core.errors import InvalidRequest, OutOfMemory, Overloaded, ServingError
from app.core.inference import DEFAULT_SIGNATURE, Array, InferenceRequest, ModelSignature
from app.core.interfaces import ServedModel
from app.core.values.value_kinds import are_finite, finite_inputs
from app.protocols.streams.lines import Block
from app.protocols.streams.rows import read_rows, read_rows_by, write_errors, write_rows
from app.transports.http.http_api import LONG_BODY_BYTES
from app.transports.http.long_bodies.reading_process import ReadHere
from app.transports.http.long_bodies.reading_processes import ReadingProcesses

logger = logging.getLogger(__name__)

#: The pause between two tries of a block that is rejected as Overloaded; it doubles each time (chosen).
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 1.0


@dataclass(slots=True, eq=False, repr=False)
class BlockPredictor:
    """The predictions of one stream: a block of lines becomes one request with a row for each line.

    Args:
        resolve: finds the model; called for each block, since a stream may outlive a version.
        asked: the signature and the wanted outputs.
        timeout_s: seconds from a block's first try to its deadline, which its halves share.
        clock: monotonic seconds, the same base as the batcher's.
        caller: the name of the caller; empty where callers have no names.
        readers: processes that read long blocks; without them a thread does.
    """

    resolve: Callable[[], ServedModel]
    asked: PredictBody
    timeout_s: float
    clock: Callable[[], float]
    caller: str = ""
    readers: ReadingProcesses | None = None

    async def answer(self, block: Block, deadline_s: float | None = None) -> bytes:
        """The reply to a block: for each line `{"prediction": ...}` or `{"error": ...}`.

        InvalidRequest or OutOfMemory halves the block, down to single lines; any other error answers all its lines.
        """
        deadline_s = deadline_s or self.clock() + self.timeout_s
        try:
            return await self._predict_in_time(block, deadline_s)
        except (InvalidRequest, OutOfMemory) as error:
            if len(block.lines) == 1:
                return write_errors(block, str(error))
        except ServingError as error:
            return write_errors(block, str(error))
        except Exception as error:
            logger.error("A bug answered lines of a stream", exc_info=error)
            return write_errors(block, "Internal error")
        return b"".join(await asyncio.gather(*[self.answer(half, deadline_s) for half in block.halves()]))

    async def _predict_in_time(self, block: Block, deadline_s: float) -> bytes:
        """The reply to a block, tried again until the deadline while the server is Overloaded. Raises ServingError."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._predict(block, deadline_s)
            except Overloaded:
                if self.clock() + pause_s >= deadline_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _predict(self, block: Block, deadline_s: float) -> bytes:
        """The lines of predictions for a block. Raises ServingError."""
        # 1. The version. A block that is read at once reaches the batcher without an await: no version takes over in
        #    between. For a long block step 2 takes the version that is served once the block has been read.
        model = self.resolve()
        signature = model.signature(self.asked.signature_name or DEFAULT_SIGNATURE)
        outputs = self.asked.wanted(signature)
        if len(block.lines) > 1 and (not signature.batchable or signature.why_alone(outputs)):
            # `answer` halves the block after this InvalidRequest, so each line becomes a request.
            raise InvalidRequest(f"Signature {signature.name!r} takes one instance at a time")

        # 2. The rows: on the event loop if they are few.
        try:
            inputs = self._read_at_once(block, signature)
        except TakesLong:
            inputs = await self._read_in_process(block, signature, deadline_s)
            model = self.resolve()
        if len(block.lines) > 1 and not are_finite(inputs, finite_inputs(signature)):
            # Here, too, each line becomes a request.
            raise InvalidRequest(f"Signature {signature.name!r} takes NaN and infinity in one instance at a time")

        # 3. The prediction. Streams are bulk work: single requests go first.
        response = await model.infer(InferenceRequest(inputs, signature.name, outputs, deadline_s, BULK, self.caller))
        return write_rows(response.outputs, len(block.lines), signature.ragged_outputs)

    def _read_at_once(self, block: Block, signature: ModelSignature) -> dict[str, Array]:
        """The inputs of a short block, read on the event loop. Raises ServingError; TakesLong for many values."""
        if block.size >= LONG_BODY_BYTES:
            raise TakesLong
        return read_rows(block.lines, signature, MOST_VALUES)

    async def _read_in_process(self, block: Block, signature: ModelSignature, deadline_s: float) -> dict[str, Array]:
        """The inputs of a long block, read by a process or, if there is none, by a thread. Raises ServingError."""
        read = partial(read_rows_by, block.lines, signature)
        if self.readers is None:
            return await asyncio.to_thread(read, ReadHere())
        return await self.readers.read(read, partial(read, ReadHere()), deadline_s - self.clock(), block.size)
