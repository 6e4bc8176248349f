"""The Server-Timing header: where the time of a request went, and how large the batch was that it shared.

`queue;dur=0.120, compute;dur=0.850, batch;desc="16"`, milliseconds. Source: https://www.w3.org/TR/server-timing/
"""

from __future__ import annotations

from app.core.inference import BatchTiming

SERVER_TIMING = b"server-timing"


def server_timing(timing: BatchTiming) -> bytes:
    queue_s, compute_s, rows = timing
    return b'queue;dur=%.3f, compute;dur=%.3f, batch;desc="%d"' % (1e3 * queue_s, 1e3 * compute_s, rows)
