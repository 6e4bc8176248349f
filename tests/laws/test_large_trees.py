"""Beside a deep or giant tree small ones are at most 1.5 times slower, and it gets in beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from statistics import median

import numpy as np
import pytest

from app.core.inference import Array
from tests.pipelines.tree_world import TREES, Trees, by_recursion, tree
from tests.support.fakes import run_in_fake_time

#: The room has fewer rows than the large trees have leaves.
CALL_S, CALLERS, ROOM = 0.001, 8, 500


def chain(leaves: int) -> dict[str, Array]:
    """A tree as deep as it has leaves, nearly."""
    children = [[leaves + at - 1 if at else 0, at + 1] for at in range(leaves - 1)]
    return {**tree(leaves), "children": np.array(children, np.int32)}


async def _latencies(world: Trees, large: Mapping[str, Array] | None) -> list[float]:
    """Of callers who send one small tree after the other, beside a large one."""
    model, seconds = world.load(TREES), list[float]()

    async def caller(number: int) -> None:
        await asyncio.sleep(number * CALL_S / CALLERS)
        for seed in range(20):
            began_s = world.loop.time()
            await world.send(model, tree(8, seed + 100 * number))
            seconds.append(world.loop.time() - began_s)

    callers = asyncio.gather(*map(caller, range(CALLERS)))
    await asyncio.sleep(3 * CALL_S)  # some of theirs wait when it comes
    beside = world.send(model, large) if large is not None else None
    await callers
    if beside is not None and large is not None:
        np.testing.assert_allclose((await beside).outputs["root"], by_recursion(large)["root"], rtol=1e-5)
    return sorted(seconds)


@pytest.mark.parametrize("large", [chain(400), tree(400)], ids=["deep", "many nodes"])
def test_small_trees_are_not_slower_than_one_and_a_half_times_beside_a_large_one(large: dict[str, Array]) -> None:
    async def main() -> None:
        found = []
        for beside in (None, large):
            world = Trees(seconds=CALL_S, max_rows=ROOM)
            found.append(await _latencies(world, beside))
            await world.end()
        alone, with_it = found
        assert median(with_it) <= 1.5 * median(alone)
        assert with_it[-2] <= 1.5 * alone[-2]

    run_in_fake_time(main())
