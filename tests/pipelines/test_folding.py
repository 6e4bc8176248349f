"""Trees on their way through a pipeline: calls are shared, answers are those of recursion, nobody pays for others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    Overloaded,
    RequestTooLarge,
    ShuttingDown,
    WouldBeLate,
)
from app.core.events import BatchExecuted
from app.core.inference import Array, InferenceRequest, InferenceResponse
from app.pipelines.folding import FoldLimits
from app.placement import RequestPlacement
from tests.pipelines.fold.fold_cores import each_core  # noqa: F401 - pytest finds it
from tests.pipelines.pipeline_world import SIZES
from tests.pipelines.tree_world import (
    CHAIN,
    FAILING,
    REJECTED,
    STACKED,
    TOO_LARGE,
    TREES,
    TYPES,
    WIDTH,
    Trees,
    by_recursion,
    forest,
    tree,
)
from tests.support.fakes import FakeReply, run_in_fake_time
from tests.support.garbage import garbage


def scenario(play: Callable[[Trees], Awaitable[None]], **options: object) -> None:
    async def main() -> None:
        world = Trees(**options)  # type: ignore[arg-type]  # those of Trees
        await play(world)
        await world.end()
        for model in world.served.values():
            assert model.bound_to is not None
            for fold in model.bound_to.folds.values():
                assert not fold.taken, "rows of nobody"

    run_in_fake_time(main())


def same(answer: InferenceResponse, expected: Mapping[str, Array]) -> None:
    assert answer.outputs.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(answer.outputs[name], array, rtol=1e-6, atol=1e-6)
        assert answer.outputs[name].shape == array.shape


def poisoned(request: Mapping[str, Array], word: float) -> dict[str, Array]:
    words = request["words"].copy()
    words[len(words) // 2] = word
    return {**request, "words": words}


# --- answers ---


@pytest.mark.parametrize("leaves", [1, 2, 3, 9, 40])
def test_a_tree_is_what_recursion_says(leaves: int) -> None:
    async def play(world: Trees) -> None:
        request = tree(leaves)
        same(await world.send(world.load(TREES), request), by_recursion(request))

    scenario(play)


def test_a_tree_whose_calls_are_quick_is_computed_on_the_event_loop() -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        await world.send(model, tree(40, 1))  # now it is known what calls take
        world.devices[0].broken = "A device was used"
        began_s, request = world.loop.time(), tree(30, 2)
        same(await world.send(model, request), by_recursion(request))
        assert world.loop.time() == began_s
        with pytest.raises(InvalidRequest, match="'nodes'"):
            await world.send(model, poisoned(tree(9), REJECTED))

    scenario(play, max_inline_s=2.0)


def test_several_trees_of_a_request_have_their_roots_in_the_order_of_their_numbers() -> None:
    async def play(world: Trees) -> None:
        request = forest(tree(3, 1), tree(1, 2), tree(7, 3))
        answer = await world.send(world.load(TREES), request)
        same(answer, by_recursion(request))
        assert len(answer.outputs["scores"]) == 3

    scenario(play)


def test_a_call_that_is_not_full_waits_for_the_leaves_of_those_who_have_come() -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        first = [world.send(model, tree(4, seed)) for seed in range(2)]
        await asyncio.sleep(1.7)  # they share calls, so that they stand at 1.5 when their first nodes are computed
        last = world.send(model, tree(4, 2))
        await asyncio.gather(*first, last)
        calls = [each.model for each in world.events if isinstance(each, BatchExecuted)]
        assert calls[:4] == ["embed", "cell", "embed", "cell"]

    scenario(play)


def test_trees_of_many_requests_share_calls() -> None:
    async def play(world: Trees) -> None:
        model, requests = world.load(TREES), [tree(8, seed) for seed in range(6)]
        answers = await asyncio.gather(*[world.send(model, request) for request in requests])
        for request, answer in zip(requests, answers, strict=True):
            same(answer, by_recursion(request))
        assert sum(world.calls("cell")) == 6 * 7
        assert (
            len(world.calls("cell")) <= 8
        )  # of 8 rows at most: 6 would hold all nodes, and a tree has 4 levels or more

    scenario(play)


def test_nodes_share_calls_with_direct_requests() -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        ask = world.send(model, tree(2))
        await asyncio.sleep(0.5)  # its leaves are computed until 1.0
        state = np.ones((1, WIDTH), np.float32)
        direct = {"word": np.ones(1, np.float32), "left": state, "right": state}
        answer = world.send(world.find("cell"), direct)  # type: ignore[arg-type]  # as a pipeline, a model infers
        await asyncio.gather(ask, answer)
        assert world.calls("cell") == [2]

    scenario(play)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_chain_is_a_recurrent_net(length: int) -> None:
    async def play(world: Trees) -> None:
        words = np.arange(length, dtype=np.float32)
        answer = await world.send(world.load(CHAIN), {"words": words})
        state, states = np.zeros(WIDTH, np.float32), []
        for word in words:
            state = state / 2 + word
            states.append(state)
        same(answer, {"root": np.array([state]), "states": np.array(states)})
        assert world.calls("next") == [1] * length

    scenario(play)


def test_two_types_of_nodes_and_two_states() -> None:
    async def play(world: Trees) -> None:
        h, c = np.arange(9, dtype=np.float32).reshape(3, 3), np.array([1, 2, 4], np.float32)
        request = {
            "h": h, "c": c, "words": np.array([10, 20, 30], np.float32), "types": np.array([0, 1, 0], np.int32),
            "children": np.array([[0, 1], [3, -1], [4, 2]], np.int32),
        }  # fmt: skip
        joined_h, joined_c = h[0] - h[1] + 10, c[0] + 2 * c[1]
        turned_h, turned_c = -joined_h, joined_c + 20
        answer = await world.send(world.load(TYPES), request)
        same(answer, {"h": (turned_h - h[2] + 30)[None], "c": np.array([turned_c + 2 * c[2]], np.float32)})

    scenario(play)


def test_children_in_one_input_and_nodes_with_several_parents() -> None:
    async def play(world: Trees) -> None:
        request = {
            "start": np.ones((1, WIDTH), np.float32),
            "children": np.array([[0, 0, -1, -1], [1, 1, 1, 0], [1, 2, -1, -1]], np.int32),
        }
        # 2 * 1 + 1 = 3, then 3 * 3 + 1 + 1 = 11, then 3 + 11 + 1
        same(await world.send(world.load(STACKED), request), {"root": np.full((1, WIDTH), 15, np.float32)})

    scenario(play)


def test_a_wide_tree_is_taken_in_calls_that_the_model_takes() -> None:
    async def play(world: Trees) -> None:
        request = tree(100, 5)
        same(await world.send(world.load(TREES), request), by_recursion(request))
        assert max(world.calls("cell")) == 8

    scenario(play)


# --- what is rejected ---


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"children": [[0, 1], [0, 2]]}, "node 0 is a child of nodes 3 and 4"),
        ({"children": [[0, 4], [3, 2]]}, "node 3 is its own descendant"),
        ({"children": [[0, 1], [3, 9]]}, "slot 1 of node 4: expected a node from 0 to 4, or -1 for no child, got 9"),
        ({"words": [1.0]}, "must have equally many rows; they have"),
    ],
)
def test_malformed_trees_are_rejected_before_anything_is_computed(change: dict[str, object], told: str) -> None:
    async def play(world: Trees) -> None:
        good = tree(3)
        bad = good | {name: np.array(value, good[name].dtype) for name, value in change.items()}
        with pytest.raises(InvalidRequest, match=told):
            await world.send(world.load(TREES), bad)
        assert not world.calls("embed")

    scenario(play)


def test_a_child_that_its_type_has_no_slot_for_is_rejected() -> None:
    async def play(world: Trees) -> None:
        request = {
            "h": np.zeros((2, 3), np.float32), "c": np.zeros(2, np.float32), "words": np.zeros(1, np.float32),
            "types": np.array([1], np.int32), "children": np.array([[0, 1]], np.int32),
        }  # fmt: skip
        with pytest.raises(InvalidRequest, match=r"node 2 is of type 1: expected children in its first 1 slots only"):
            await world.send(world.load(TYPES), request)

    scenario(play)


def test_a_tree_that_is_too_large_and_trees_that_find_no_room() -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        with pytest.raises(RequestTooLarge, match="at most 40 nodes, got 41"):
            await world.send(model, tree(21))
        asked = [world.send(model, tree(20, seed)) for seed in range(3)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in answers] == [InferenceResponse, InferenceResponse, Overloaded]

    scenario(play, limits=FoldLimits(40, 78 * (48 + 16 + 4 + 12 + 4)))


# --- nobody pays for others ---


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(("word", "error"), [(REJECTED, InvalidRequest), (FAILING, InferenceFailed)])
def test_a_poisoned_node_fails_its_request(word: float, error: type[Exception], devices: int) -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        requests = [tree(6, seed) for seed in range(4)]
        requests[2] = poisoned(requests[2], word)
        answers = await asyncio.gather(*[world.send(model, request) for request in requests], return_exceptions=True)
        told = answers.pop(2)
        assert isinstance(told, error)
        assert str(told).startswith("Step 'nodes': ")
        if word == FAILING:  # whoever shared the call fails, too
            return
        for request, answer in zip([*requests[:2], requests[3]], answers, strict=True):
            assert isinstance(answer, InferenceResponse), answer
            same(answer, by_recursion(request))

    scenario(play, devices=devices)


def test_a_call_for_which_there_is_no_memory_is_halved() -> None:
    async def play(world: Trees) -> None:
        request = forest(tree(2, 1), poisoned(tree(2, 2), TOO_LARGE), tree(2, 3))
        answer = await world.send(world.load(TREES), request)
        np.testing.assert_array_equal(answer.outputs["marks"], request["words"] * 2)
        assert world.calls("cell")[0] == 3
        assert 1 in world.calls("cell")

    scenario(play)


def test_a_giant_tree_does_not_hold_up_small_ones() -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        giant = world.send(model, tree(300, 1))
        await asyncio.sleep(45)
        began = world.loop.time()
        await world.send(model, tree(2, 2))
        assert world.loop.time() - began <= 6  # its leaves, its node, its score; each behind a call under way
        assert not giant.done()
        await giant

    scenario(play)


# --- the end ---


def test_a_deadline_ends_a_tree_and_nothing_more_is_computed() -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        with pytest.raises(DeadlineExceeded):
            await world.send(model, tree(100, 1), timeout_s=16)
        calls = len(world.calls("cell"))
        await asyncio.sleep(10)
        assert len(world.calls("cell")) == calls

    scenario(play)


@pytest.mark.parametrize("after_s", [0.5, 1.5, 2.5])
def test_a_cancelled_tree_is_computed_no_further(after_s: float) -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        asked, other = world.send(model, tree(8, 1)), world.send(model, tree(8, 2))
        await asyncio.sleep(after_s)
        asked.cancel()
        same(await other, by_recursion(tree(8, 2)))
        in_flight = 7 if after_s > 1 else 0
        assert sum(world.calls("cell")) <= 7 + in_flight

    scenario(play)


def test_nodes_that_wait_leave_the_queue_with_their_request() -> None:
    async def play(world: Trees) -> None:
        model, slow = world.load(TREES), world.find("small")
        asked = world.send(model, tree(2, 1))
        await asyncio.sleep(0.2)  # urgent requests count as having waited for 0.4 s
        others = [world.send(slow, {"x": np.ones((8, 2), np.float32)}, priority=1) for _ in range(3)]  # type: ignore[arg-type]  # see above
        await asyncio.sleep(1)
        asked.cancel()
        await asyncio.gather(*others)
        assert not world.calls("cell")

    scenario(play)


def test_a_drain_waits_for_trees() -> None:
    async def play(world: Trees) -> None:
        model, request = world.load(TREES), tree(20, 1)
        asked = world.send(model, request)
        await asyncio.sleep(0.5)
        world.batcher.begin_drain()
        same(await asked, by_recursion(request))
        with pytest.raises(ShuttingDown):
            await world.send(model, request)
        with pytest.raises(ShuttingDown):
            await world.send(world.load(CHAIN, "chain"), {"words": np.ones(2, np.float32)})

    scenario(play)


def test_rows_that_must_not_meet_are_calls_of_their_own() -> None:
    """NaN where the model's loops may depend on it, and each node where answers depend on other rows."""

    async def play(world: Trees) -> None:
        model, cell = world.load(TREES), world.loaded["cell", 1]
        (signature,) = cell.signatures.values()
        requests = [tree(2, seed) for seed in range(3)]
        requests[1]["words"][0] = np.nan
        for change, calls in (
            ({"finite_only": "it has loops"}, [1, 2]),
            ({"alone": {"state": "it depends on others"}}, [1, 1, 1]),
        ):
            cell.signatures = {signature.name: replace(signature, **change)}  # type: ignore[arg-type]  # see above
            world.models["cell"][1].adopt(RequestPlacement("cell", 1, cell, SIZES))
            cell.calls.clear()
            answers = await asyncio.gather(*[world.send(model, request) for request in requests])
            for request, answer in zip(requests, answers, strict=True):
                np.testing.assert_allclose(answer.outputs["states"], by_recursion(request)["states"], rtol=1e-6)
            assert sorted(len(call) for call in cell.calls) == calls

    scenario(play)


def test_calls_are_as_large_as_the_model_takes_now() -> None:
    """While a version is made ready it takes fewer rows: calls of more would be cut, and come back in parts."""

    async def play(world: Trees) -> None:
        model, cell = world.load(TREES), world.models["cell"][1]
        cell.adopt(RequestPlacement("cell", 1, world.loaded["cell", 1], BatchSizes((1, 2))))
        request = tree(20, 1)
        same(await world.send(model, request), by_recursion(request))
        assert cell.call_rows("serving_default") == max(world.calls("cell")) == 2

    scenario(play)


def test_a_deep_tree_that_cannot_be_in_time_is_rejected_at_once() -> None:
    """Its levels are calls one after another, also if its first step is another model."""

    async def play(world: Trees) -> None:
        model, words = world.load(TREES), np.ones(29, np.float32)
        await world.send(model, tree(3))  # what calls take is known
        busy = world.send(model, tree(3, 1))
        await asyncio.sleep(0.5)
        children = np.array([[0, 1], *[[node, node + 28] for node in range(2, 30)]], np.int32)
        deep = {"tokens": np.ones(30, np.int32), "words": words, "children": children}
        with pytest.raises(WouldBeLate):
            await world.send(model, deep, timeout_s=20)
        await busy

    scenario(play)


def test_an_idle_server_takes_trees_whose_other_steps_wait_already() -> None:
    """It never learnt that models had become quicker: the fold was judged by the step beside it, which waited."""

    async def play(world: Trees) -> None:
        beside = b"""
steps:
  beside: {model: small, inputs: {x: x}}
  nodes: {model: next, inputs: {word: words}, fold: {slots: [before], state: state}}
outputs: {y: beside.y, root: nodes.root}
"""
        model = world.load(beside)
        asked = {"x": np.ones((1, 2), np.float32), "words": np.ones(3, np.float32)}
        await world.send(model, asked)
        for device in world.devices:
            device.seconds = 0.1
        await world.send(model, asked, timeout_s=1.0)

    scenario(play)


def test_a_request_whose_caller_has_gone_goes_no_further() -> None:
    """Its reply is over when its task is cancelled; the request itself is cancelled a turn of the loop later."""

    async def play(world: Trees) -> None:
        model, reply = world.load(TREES), FakeReply()
        handle = model.submit(InferenceRequest(tree(4, 1)), reply)
        await asyncio.sleep(0.5)
        reply.set_exception(asyncio.CancelledError())
        await asyncio.sleep(1.0)
        assert not world.loaded["cell", 1].calls
        handle.cancel()
        assert len(reply.answers) == 1

    scenario(play)


def test_nothing_of_a_tree_waits_for_the_collector() -> None:
    """Neither of those that are answered, nor of those that are rejected or fail."""

    async def play(world: Trees) -> None:
        model = world.load(TREES)
        cycle = {**tree(3), "children": np.array([[0, 4], [1, 3]], np.int32)}
        asked = [tree(9), tree(4), cycle, poisoned(tree(5), FAILING)]

        async def ask() -> None:
            for request in asked:
                await asyncio.gather(*[world.send(model, request) for _ in range(2)], return_exceptions=True)

        await ask()
        with garbage() as found:
            await ask()
        assert not found

    scenario(play)
