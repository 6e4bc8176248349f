"""The end of a batch: everyone in it gets a reply, and what happened is told. Pure."""

from __future__ import annotations

from app.batching.batch import Answer, Execution
from app.batching.submission import StartedBatch
from app.errors import ServingError
from app.events import BatchExecuted
from app.inference import BatchTiming


def answer(batch: StartedBatch, execution: Execution) -> BatchExecuted:
    """Gives each request that still waits for one its rows or its error, and lets go of all."""
    compute_s = execution.ended_s - execution.started_s
    requests, rows = batch.requests, batch.rows
    waits = [execution.started_s - request.arrival_s for request in requests]
    failed_rows = []
    for request, outcome, wait_s in zip(requests, execution.outcomes, waits, strict=True):
        if isinstance(outcome, ServingError):
            failed_rows.append(request.rows)
            request.fail(outcome)
        elif not request.reply.done():
            request.reply.set_result(Answer(outcome, BatchTiming(wait_s, compute_s, rows)))
        request.forget()
    batch.left()
    if not failed_rows:
        batch.took(compute_s)
    return BatchExecuted(
        *batch.key[:3],
        rows,
        execution.padded_rows,
        batch.reason,
        compute_s,
        waits,
        len(failed_rows),
        sum(failed_rows),
        sum([request.deadline_s <= execution.started_s for request in requests]),
        execution.waste,
    )
