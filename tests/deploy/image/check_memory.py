"""In a small container no legal body ends the server: it is answered, or rejected for a reason, and digits are served.

Real limits of memory: 24 callers at once with the largest legal body of each way in, then with the largest of each
format that the server says it takes, and the same beside 10,000 connections that send nothing.
"""

from __future__ import annotations

import json

import pytest

from tests.deploy.image.body_callers import all_formats
from tests.deploy.image.container import START_S, eventually, running

CONNECTIONS = 10_000


@pytest.mark.parametrize("limit", ["512m", "768m", "1g"])
def test_no_body_ends_a_small_container(limit: str) -> None:
    options = ["--memory", limit, "--memory-swap", limit]
    with running(*options) as container:
        eventually(container.is_ready, START_S)
        eventually(lambda: json.loads(container.ask("GET", "/health")[1])["largest_bodies"], START_S)
        seen = all_formats((container.port, container.grpc_port), CONNECTIONS)
        assert (container.state("Running"), container.state("OOMKilled")) == ("true", "false"), seen
        assert not seen.unexplained()
        assert seen.digits > 0
        assert not seen.missed
