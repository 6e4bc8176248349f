from __future__ import annotations

import math
from collections import Counter

from app.bench.open_loop import OpenLoopResult
from bench.loading_beside import Beside, p99_ratio, report


def run(*milliseconds: float, failed: int = 0) -> OpenLoopResult:
    latencies = sorted(each / 1e3 for each in milliseconds)
    return OpenLoopResult(200.0, 1.0, latencies_s=latencies, failures=Counter({"status 503": failed}))


def test_each_round_is_compared_with_itself_and_the_bare_server_stands_beside() -> None:
    ferry = [Beside(run(1.0), run(2.0)), Beside(run(10.0), run(10.0)), Beside(run(1.0), run(4.0))]
    lines = list(report({"ferry": ferry, "bare": [Beside(run(1.0), run(1.5))]}))
    assert p99_ratio(ferry).median == 2.0
    assert lines[1] == "ferry p99: 1.00 ms alone, 4.00 ms beside loads, 2.00 (1.00-4.00) times"
    assert lines[3] == "bare  p99: 1.00 ms alone, 1.50 ms beside loads, 1.50 (1.50-1.50) times"


def test_a_request_that_fails_beside_a_load_counts_as_infinitely_late() -> None:
    besides = [Beside(run(1.0), run(1.0, failed=1))]
    assert math.isinf(p99_ratio(besides).median)
    assert list(report({"ferry": besides}))[-1] == "ferry: 1 requests failed"
