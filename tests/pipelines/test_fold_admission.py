"""Requests with trees begin together with those that arrive in the same turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from app.core.errors import InferenceFailed, InvalidRequest, Overloaded, RequestTooLarge, ServingError, ShuttingDown
from app.core.events import PipelineEnded
from app.core.inference import InferenceRequest
from app.core.reply import Answer
from app.pipelines import folding
from app.pipelines.fold.forests import ForestInputs
from app.pipelines.fold.reservations import Reservations, Reserved
from app.pipelines.folding import Fold, FoldLimits
from app.pipelines.pipeline_model import PipelineModel
from tests.pipelines.test_folding import same, scenario
from tests.pipelines.tree_world import TREES, Trees, by_recursion, tree
from tests.support.fakes import FakeReply

CYCLE = tree(3) | {"children": np.array([[0, 4], [3, 2]], np.int32)}


def submitted(model: PipelineModel, *requests: dict[str, np.ndarray]) -> list[FakeReply]:
    replies = [FakeReply() for _ in requests]
    for request, reply in zip(requests, replies, strict=True):
        model.submit(InferenceRequest(request), reply)
    return replies


def outcomes(world: Trees) -> list[str]:
    return [event.outcome for event in world.events if isinstance(event, PipelineEnded)]


def test_those_of_one_turn_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = list[int]()

    class Noting(Reservations):
        def _entered(self, asked: Sequence[ForestInputs]) -> Sequence[Reserved] | None:
            groups.append(len(asked))
            return super()._entered(asked)

        def _entered_by_numpy(self, asked: Sequence[ForestInputs]) -> Sequence[Reserved | ServingError]:
            groups.append(len(asked))
            return super()._entered_by_numpy(asked)

    monkeypatch.setattr(folding, "Reservations", Noting)

    async def play(world: Trees) -> None:
        model, requests = world.load(TREES), [tree(5 + seed, seed) for seed in range(4)]
        answers = await asyncio.gather(*[world.send(model, request) for request in requests])
        for request, answer in zip(requests, answers, strict=True):
            same(answer, by_recursion(request))
        assert set(groups) == {4}

    scenario(play)


def test_one_that_is_malformed_is_rejected_alone_and_before_anything_is_computed() -> None:
    async def play(world: Trees) -> None:
        model = world.load(TREES)
        first, bad, last = submitted(model, tree(4, 1), CYCLE, tree(4, 2))
        await asyncio.sleep(0.5)  # the leaves are computed until 1.0
        assert isinstance(bad.answers[0], InvalidRequest)
        assert "Step 'nodes': " in str(bad.answers[0])
        assert not [*first.answers, *last.answers]
        await asyncio.sleep(20)
        assert len(world.loaded["embed", 1].calls[0]) == 8
        assert all(isinstance(reply.answers[0], Answer) for reply in (first, last))
        assert outcomes(world) == ["rejected", "answered", "answered"]

    scenario(play)


def test_who_leaves_before_it_begins_takes_no_room() -> None:
    async def play(world: Trees) -> None:
        model, reply, gone = world.load(TREES), FakeReply(), FakeReply()
        model.submit(InferenceRequest(tree(4)), reply).cancel()
        model.submit(InferenceRequest(tree(4)), gone)
        gone.set_exception(asyncio.CancelledError())
        await asyncio.sleep(0.5)
        assert not world.loaded["embed", 1].calls
        assert not reply.answers
        assert outcomes(world) == ["cancelled", "cancelled"]

    scenario(play)


def test_those_that_come_first_get_the_room() -> None:
    async def play(world: Trees) -> None:
        replies = submitted(world.load(TREES), tree(4, 1), tree(4, 2), tree(2, 3))  # 7, 7 and 3 nodes
        await asyncio.sleep(0.5)
        assert [[type(each) for each in reply.answers] for reply in replies] == [[], [Overloaded], []]

    # A node has 12 bytes of state, two words of 4, and 64 of the agenda.
    scenario(play, limits=FoldLimits(100, 84 * 13))


def test_a_drain_that_begins_meanwhile_rejects_them() -> None:
    async def play(world: Trees) -> None:
        (reply,) = submitted(world.load(TREES), tree(4))
        world.batcher.begin_drain()
        await asyncio.sleep(0.5)
        assert isinstance(reply.answers[0], ShuttingDown)

    scenario(play)


@pytest.mark.parametrize("nodes", [100, 10_000])
def test_many_nodes(nodes: int) -> None:
    async def play(world: Trees) -> None:
        (reply,) = submitted(world.load(TREES), tree(nodes))
        await asyncio.sleep(0.5)
        assert [type(each) for each in reply.answers] == ([RequestTooLarge] if nodes > 1000 else [])

    scenario(play, limits=FoldLimits(1000, 1 << 20))


def test_a_bug_in_the_check_fails_requests_and_strands_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Sequence[ServingError]:
        raise ValueError

    async def play(world: Trees) -> None:
        monkeypatch.setattr(Fold, "reserve", broken)
        replies = submitted(world.load(TREES), tree(4), tree(5))
        await asyncio.sleep(0.5)
        assert [type(reply.answers[0]) for reply in replies] == [InferenceFailed] * 2

    scenario(play)
