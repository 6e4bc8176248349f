from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import BatchTiming, StepTiming
from app.transports.http.server_timing import server_timing

#: RFC 9110's token and quoted string, as far as they are used here; https://www.w3.org/TR/server-timing/#the-server-timing-header-field
_METRIC = re.compile(r'([a-z0-9_-]+)(?:;dur=(\d+\.\d+))?(?:;desc="([a-z0-9. ]+)")?')

_SECONDS = st.floats(0, 1e5)
_ROWS = st.integers(0, 10**6)
_STEPS = st.lists(
    st.builds(StepTiming, st.from_regex("[a-z][a-z0-9_-]{0,8}", fullmatch=True), _SECONDS, _SECONDS, _ROWS)
)


def test_milliseconds_and_the_rows_of_the_batch() -> None:
    value = server_timing(BatchTiming(0.00012, 0.00085, 16))
    assert value == b'queue;dur=0.120, compute;dur=0.850, batch;desc="16"'


def test_each_step_of_a_pipeline_says_what_it_computed() -> None:
    value = server_timing(BatchTiming(0.00012, 0.00085, 16, (StepTiming("small", 0.0001, 0.0008, 24),)))
    assert value.endswith(b'batch;desc="16", small;dur=0.800;desc="waited 0.100 batch 24"')


@given(st.builds(BatchTiming, _SECONDS, _SECONDS, _ROWS, _STEPS.map(tuple)))
def test_whatever_the_times_the_form_is_the_standards(timing: BatchTiming) -> None:
    found = [_METRIC.fullmatch(metric) for metric in server_timing(timing).decode().split(", ")]
    names = [step.name for step in timing.steps]
    assert [each and each[1] for each in found] == ["queue", "compute", "batch", *names]
    queue, compute, batch, *steps = (each for each in found if each)
    assert abs(float(queue[2]) - 1e3 * timing.queue_s) < 1e-3
    assert abs(float(compute[2]) - 1e3 * timing.compute_s) < 1e-3
    assert int(batch[3]) == timing.rows
    for step, metric in zip(timing.steps, steps, strict=True):
        waited, rows = re.findall(r"[\d.]+", metric[3])
        assert abs(float(metric[2]) - 1e3 * step.compute_s) < 1e-3
        assert abs(float(waited) - 1e3 * step.queue_s) < 1e-3
        assert int(rows) == step.rows
