"""Requests of numbers, NaN and infinities from many clients at once are answered as TensorFlow answers each alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tests.awkward.awkward_model import Asked, AwkwardModel, floats
from tests.awkward.catalog import MODELS, DirectCalls, write
from tests.awkward.test_awkward_models import BASE, answer, differences
from tests.every_protocol.drivers.driver import Driver
from tests.every_protocol.drivers.tensorflow_rest import MessagePack
from tests.every_protocol.live import live

CLIENTS, REQUESTS = 32, 12

#: Their rows do not see each other, but for what loops do with rows that are not finite.
NAMES = ("halved_until_small", "steps_of_the_row", "each_row_decides")

ODD = (np.nan, np.inf, -np.inf)


def drawn_requests(random: np.random.Generator) -> list[Asked]:
    """One row to four each; every other request holds something odd."""
    requests = []
    for number in range(REQUESTS):
        values = random.choice([0.5, -3.0, 2.0, 7.5, 40.0], random.integers(1, 5))
        if number % 2:
            values[random.integers(len(values))] = random.choice(ODD)
        requests.append(Asked({"x": floats(*values)}))
    return requests


@pytest.mark.parametrize("frontends", [0, 1])
def test_no_request_meets_what_changes_its_answer(frontends: int, tmp_path: Path) -> None:
    models = [each for each in MODELS if each.name in NAMES]
    write(tmp_path, models)
    direct = DirectCalls(tmp_path)
    settings = {**BASE, "variant_cache": "", "execution_variant": "plain", "frontends": frontends}

    async def client(driver: Driver, model: AwkwardModel, seed: int) -> list[str]:
        problems = []
        for asked in drawn_requests(np.random.default_rng(seed)):
            got = await answer(driver, model, asked, {})
            found = [str(got)] if isinstance(got, Exception) else differences(got, direct(model, asked), exact=False)
            problems += [f"{model.name} of {asked.inputs['x']}: {each}" for each in found]
        return problems

    async def main() -> list[str]:
        async with live(tmp_path, **settings) as server:
            driver = MessagePack(server)
            all_clients = [client(driver, model, seed) for seed in range(CLIENTS) for model in models]
            return [problem for problems in await asyncio.gather(*all_clients) for problem in problems]

    problems = asyncio.run(main())
    assert not problems, f"{len(problems)} of {len(models) * CLIENTS * REQUESTS}:\n" + "\n".join(problems[:12])
