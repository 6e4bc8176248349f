"""Inline execution: one call on the event loop for requests that arrived in the same turn and need not queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.batching.batch import execute
from app.batching.function import BatchFunction
from app.batching.request import LaneKey, PendingRequest
from app.core.errors import InvalidRequest, OutOfMemory, ServingError
from app.core.events import BatchExecuted, Listener
from app.core.inference import Array, BatchTiming
from app.core.reply import ANSWERED, Answer


def compute_inline(  # noqa: PLR0917 - keyword arguments cost time
    key: LaneKey,
    function: BatchFunction,
    inputs: Mapping[str, Array],
    rows: int,
    arrivals_s: Sequence[float],
    clock: Callable[[], float],
    listener: Listener,
) -> Answer | None:
    """Computes the rows of all requests in one call; None if the model rejects them, so that each must run by itself.

    Raises:
        InferenceFailed: the model failed, for all of them.
    """
    execution = execute(function, [PendingRequest(inputs, rows, ANSWERED, arrivals_s[0])], clock)
    compute_s = execution.ended_s - execution.started_s
    function.record_latency(compute_s)
    function.costs(key.shape).record_call(function.sizes.padded(rows), compute_s)
    outcome = execution.outcomes[0]
    if execution.mismatch:
        function.stop_batching(execution.mismatch)
        return None
    if isinstance(outcome, InvalidRequest | OutOfMemory):
        return None

    waits = [execution.started_s - arrival_s for arrival_s in arrivals_s]
    failures = (len(waits), rows) if isinstance(outcome, ServingError) else (0, 0)
    padded_rows, padding_ratio = execution.padded_rows, execution.padding_ratio
    listener(BatchExecuted(*key[:3], rows, padded_rows, "idle", compute_s, waits, *failures, 0, padding_ratio))
    if isinstance(outcome, ServingError):
        raise outcome
    return Answer(outcome, BatchTiming(waits[0], compute_s, rows))
