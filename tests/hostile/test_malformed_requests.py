"""Thousands of malformed requests to a live server: each gets an answer, and none an internal error.

`bench.hostile` sends them to a server under load, beside other attacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from app import runtime
from tests.every_protocol.live import RUNTIME, live
from tests.hostile.attack import Attack
from tests.hostile.from_openapi import openapi_requests
from tests.hostile.hostile_requests import HostileRequests
from tests.hostile.served import answers, served_inputs, used_mib

SEED = 20
MUTATIONS, FROM_OPENAPI = 4600, 400

#: From one half of the mutations to the other.
MOST_GROWTH_MIB = 32


@pytest.fixture(autouse=True)
def _runtime() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(runtime._REGISTRY, *RUNTIME)
        yield


def test_malformed_requests_harm_no_other_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as served:
            models = await served_inputs(served.http)
            before = await answers(served.http, models)
            attack = Attack(served.http.base_url.port or 0, served.channel)
            await attack.send_all(openapi_requests(served.app.openapi(), FROM_OPENAPI, SEED))
            mutated = iter(HostileRequests(models, SEED))
            await attack.send_all(islice(mutated, MUTATIONS // 2))
            half = used_mib()
            await attack.send_all(islice(mutated, MUTATIONS // 2))
            assert used_mib() < half + MOST_GROWTH_MIB
            tally = attack.tally
            assert not tally.violations, "\n".join(tally.violations[:20])
            assert tally.requests >= MUTATIONS
            rejected = sum(codes["400"] + codes["INVALID_ARGUMENT"] for codes in tally.codes.values())
            assert rejected > tally.requests / 3, tally.codes
            assert await answers(served.http, models) == before
            assert served.server.dead() == []
            assert served.waiting_rows() == 0

    asyncio.run(main())
