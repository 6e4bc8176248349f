"""Every request ends where RFC 9112 says, however its bytes are cut (rfc_cases.py)."""

from __future__ import annotations

import json

import pytest

from tests.transports.http1.connection_world import PREDICT, ROW, World, played, request
from tests.transports.http1.rfc_cases import CASES, Case

BODY = json.dumps(ROW).encode()


def _statuses(world: World) -> list[int]:
    return [status for status, _, _ in world.replies()]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("piece", [100_000, 7, 1])
def test_a_request_ends_where_the_rfc_says(case: Case, piece: int) -> None:
    sent = case.sent(PREDICT, BODY)
    world = played(True, [*[sent[at : at + piece] for at in range(0, len(sent), piece)]])
    assert _statuses(world) == list(case.statuses)
    assert world.transport.closed == (len(case.statuses) == 1)


@pytest.mark.parametrize("case", [case for case in CASES if case.source == "RFC 9110, 7.8"], ids=str)
def test_so_it_does_behind_a_request_that_asgi_answers(case: Case) -> None:
    before = request("/v2/models/m/ready", b"", method="GET")
    world = played(True, [before + case.sent(PREDICT, BODY)])
    assert _statuses(world) == [200, *case.statuses]


@pytest.mark.parametrize("case", [case for case in CASES if case.statuses[0] >= 400], ids=str)
def test_what_cannot_be_read_is_answered_as_json(case: Case) -> None:
    world = played(True, [case.sent(PREDICT, BODY)])
    (_, headers, body), *_ = world.replies()
    assert headers["content-type"] == "application/json"
    assert set(json.loads(body)) == {"error"}
