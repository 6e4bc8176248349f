"""The Server-Timing header: where the time of a request went, and how large the batch was that it shared.

`queue;dur=0.120, compute;dur=0.850, batch;desc="16"`, milliseconds; of a pipeline also a metric for each step, with
what it computed: `small;dur=0.850;desc="waited 0.120 batch 16"`. Source: https://www.w3.org/TR/server-timing/
"""

from __future__ import annotations

from app.core.inference import BatchTiming, StepTiming

SERVER_TIMING = b"server-timing"


def server_timing(timing: BatchTiming) -> bytes:
    queue_s, compute_s, rows, steps = timing
    whole = b'queue;dur=%.3f, compute;dur=%.3f, batch;desc="%d"' % (1e3 * queue_s, 1e3 * compute_s, rows)
    return whole if not steps else b", ".join([whole, *map(_step, steps)])


def _step(step: StepTiming) -> bytes:
    waited, computed = 1e3 * step.queue_s, 1e3 * step.compute_s
    return b'%b;dur=%.3f;desc="waited %.3f batch %d"' % (step.name.encode(), computed, waited, step.rows)
