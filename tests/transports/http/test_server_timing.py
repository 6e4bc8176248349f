from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import BatchTiming
from app.transports.http.server_timing import server_timing

#: RFC 9110's token and quoted string, as far as they are used here; https://www.w3.org/TR/server-timing/#the-server-timing-header-field
_METRIC = re.compile(r'([a-z]+)(?:;dur=(\d+\.\d+))?(?:;desc="(\d+)")?')


def test_milliseconds_and_the_rows_of_the_batch() -> None:
    value = server_timing(BatchTiming(0.00012, 0.00085, 16))
    assert value == b'queue;dur=0.120, compute;dur=0.850, batch;desc="16"'


@given(st.builds(BatchTiming, st.floats(0, 1e5), st.floats(0, 1e5), st.integers(0, 10**6)))
def test_whatever_the_times_the_form_is_the_standards(timing: BatchTiming) -> None:
    found = [_METRIC.fullmatch(metric) for metric in server_timing(timing).decode().split(", ")]
    assert [each and each[1] for each in found] == ["queue", "compute", "batch"]
    queue, compute, batch = (each for each in found if each)
    assert abs(float(queue[2]) - 1e3 * timing.queue_s) < 1e-3
    assert abs(float(compute[2]) - 1e3 * timing.compute_s) < 1e-3
    assert int(batch[3]) == timing.rows
