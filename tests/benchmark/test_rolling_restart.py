"""A short rolling restart behind HAProxy, with a model in numpy: nothing fails, and the measurement sees what does."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

from bench.rolling_restart import Load, Result, Target, light_target, measure, parsed
from tests.support.missing import skip_loudly

#: Servers are restarted in turn, at least once each.
SERVERS = 3


def test_no_request_fails_while_three_servers_are_restarted() -> None:
    if shutil.which("haproxy", path=f"/usr/sbin:{os.environ['PATH']}") is None:
        skip_loudly("HAProxy is missing: a rolling restart is NOT tried. Install it: .ci/packages")
    quick = ["--grace", "2", "--check", "0.2"]  # as long for ten checks, where it is three usually
    options = parsed(["--light", "--balancer", "tcp", "--requests", "700", "--clients", "4", *quick])
    result = asyncio.run(measure(options))
    assert result.passes, result.text()
    assert result.restarts >= SERVERS
    assert sum(load.sent for load in result.loads) >= 2_000


@pytest.mark.parametrize(("failures", "code"), [(["503"], 0), ([], 1)])
def test_a_failed_request_and_an_exit_code_count(failures: list[str], code: int) -> None:
    result = Result([Load("kept", 1, 1, failures, [0.1])], 1, [code], 0, 1.0)
    assert not result.passes
    assert Result([Load("kept", 1, 1, [], [0.1])], 1, [0], 0, 1.0).passes


def test_the_light_model_and_its_answer_go_together() -> None:
    target: Target = light_target(0)
    assert target.answer.tolist() == (2 * target.value).tolist()
