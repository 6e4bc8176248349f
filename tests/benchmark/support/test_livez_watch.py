from __future__ import annotations

import pytest

from bench.support.livez_watch import Latency


def test_p99_and_the_worst_answer_decide() -> None:
    quick = [0.001] * 990
    assert Latency.of("m", [*quick, *[0.019] * 10], quick).passes
    assert not Latency.of("m", [*quick, *[0.021] * 10], quick).passes
    assert Latency.of("m", [*quick, 0.099], quick).passes
    assert not Latency.of("m", [*quick, 0.101], quick).passes
    for seconds, bare in [([], quick), (quick, [])]:
        with pytest.raises(ValueError, match="no answer"):
            Latency.of("m", seconds, bare)


def test_a_slow_machine_is_shown_and_excuses_nothing() -> None:
    latency = Latency.of("m", [0.2], [0.001, 0.3])
    assert (latency.bare_p99_s, latency.bare_worst_s) == (0.3, 0.3)
    assert not latency.passes
