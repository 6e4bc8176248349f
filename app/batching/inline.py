"""One call, right now, for requests that arrived in the same turn of the event loop and nobody stands before. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.batching.batch import timed_execution
from app.batching.function import BatchFunction
from app.batching.request import LaneKey, PendingRequest
from app.core.errors import InvalidRequest, OutOfMemory, ServingError
from app.core.events import BatchExecuted, Listener
from app.core.inference import Array, BatchTiming
from app.core.reply import ANSWERED, Answer


def compute(  # noqa: PLR0917 - names cost time
    key: LaneKey,
    function: BatchFunction,
    inputs: Mapping[str, Array],
    rows: int,
    arrivals_s: Sequence[float],
    clock: Callable[[], float],
    listener: Listener,
) -> Answer | None:
    """The answer to all of them; None where they were rejected together, and have to be told apart.

    Raises InferenceFailed: as the model failed for all of them.
    """
    execution = timed_execution(function, [PendingRequest(inputs, rows, ANSWERED, arrivals_s[0])], clock)
    compute_s = execution.ended_s - execution.started_s
    function.took(compute_s)
    function.costs(key.shape).note(function.sizes.padded(rows), compute_s)
    outcome = execution.outcomes[0]
    if isinstance(outcome, InvalidRequest | OutOfMemory) or not function.batchable:
        return None
    waits = [execution.started_s - arrival_s for arrival_s in arrivals_s]
    failures = (len(waits), rows) if isinstance(outcome, ServingError) else (0, 0)
    padded_rows, waste = execution.padded_rows, execution.waste
    listener(BatchExecuted(*key[:3], rows, padded_rows, "idle", compute_s, waits, *failures, 0, waste))
    if isinstance(outcome, ServingError):
        raise outcome
    return Answer(outcome, BatchTiming(waits[0], compute_s, rows))
