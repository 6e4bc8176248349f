"""What a pipeline tells of each request when it ends."""

from __future__ import annotations

import asyncio

import pytest

from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest, Overloaded
from app.core.events import PipelineEnded
from tests.pipelines.pipeline_world import CASCADE, CHAIN, OPTIONAL, World, scenario
from tests.pipelines.tree_world import TREES, Trees, tree
from tests.support.fakes import run_in_fake_time


def ended(world: World) -> list[PipelineEnded]:
    return [each for each in world.events if isinstance(each, PipelineEnded)]


def became(event: PipelineEnded) -> dict[str, str]:
    return {
        each.step: "computed" if each.timing else "failed" if each.failed else "passed over" for each in event.steps
    }


def test_an_answer_is_told_once_with_the_rows_and_times_of_its_steps() -> None:
    async def play(world: World) -> None:
        answer = await world.ask(world.load(CASCADE), 1, 7, 2)
        (event,) = ended(world)
        assert event[:5] == ("pipeline", 1, "serving_default", "answered", 3)
        assert event.timing == answer.timing
        assert (event.seconds, event.overhead_s) == (pytest.approx(2), pytest.approx(0))
        assert [each[:3] for each in event.steps] == [("small", 3, 3), ("big", 2, 3)]
        assert [each.timing for each in event.steps] == list(answer.timing.steps)

    scenario(play)


def test_a_step_without_rows_was_passed_over() -> None:
    async def play(world: World) -> None:
        await world.ask(world.load(CASCADE), 7, 8)
        assert became(ended(world)[0]) == {"small": "computed", "big": "passed over"}

    scenario(play)


def test_a_fold_over_trees_without_inner_nodes_was_passed_over() -> None:
    async def play() -> None:
        world = Trees()
        await world.send(world.load(TREES), tree(1))
        assert not world.calls("cell")
        assert became(ended(world)[0]) == {"leaves": "computed", "nodes": "passed over", "scores": "computed"}

    run_in_fake_time(play())


def test_a_step_that_was_not_asked_for_is_not_told() -> None:
    async def play(world: World) -> None:
        await world.ask(world.load(CASCADE), 1, outputs=("score",))
        assert became(ended(world)[0]) == {"small": "computed"}

    scenario(play)


def test_an_optional_step_fails_and_the_request_does_not() -> None:
    async def play(world: World) -> None:
        await world.ask(world.load(OPTIONAL), 13)
        (event,) = ended(world)
        assert (event.outcome, became(event)) == ("answered", {"small": "computed", "big": "failed"})

    scenario(play)


def test_a_step_that_fails_ends_the_request() -> None:
    async def play(world: World) -> None:
        with pytest.raises(InferenceFailed):
            await world.ask(world.load(CHAIN), 12)
        (event,) = ended(world)
        assert (event.outcome, became(event)) == ("failed", {"first": "computed", "second": "failed"})
        assert event.seconds == pytest.approx(2)
        assert event.timing.compute_s == 0

    scenario(play)


def test_a_deadline_passes_at_a_step() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        others = [world.ask(model, 1) for _ in range(8)]
        with pytest.raises(DeadlineExceeded):
            await world.ask(model, 1, timeout_s=1.5)
        await asyncio.gather(*others)
        late = [each for each in ended(world) if each.outcome == "failed"]
        assert [each.seconds for each in late] == [pytest.approx(1.5)]

    scenario(play)


def test_a_caller_that_leaves_cancels_it() -> None:
    async def play(world: World) -> None:
        asked = world.ask(world.load(CHAIN), 1)
        await asyncio.sleep(1.5)
        asked.cancel()
        await asyncio.sleep(5)
        (event,) = ended(world)
        assert (event.outcome, became(event)) == ("cancelled", {"first": "computed"})
        assert event.seconds == pytest.approx(1.5)

    scenario(play)


def test_a_request_without_room_is_rejected_and_no_step_has_failed() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        answers = await asyncio.gather(*[world.ask(model, 1, 2) for _ in range(3)], return_exceptions=True)
        assert [each for each, answer in enumerate(answers) if isinstance(answer, Overloaded)] == [2]
        rejected, *_ = ended(world)
        assert (rejected.outcome, rejected.steps) == ("rejected", [])

    scenario(play, max_rows=4)


def test_what_does_not_fit_the_signature_never_began() -> None:
    async def play(world: World) -> None:
        with pytest.raises(InvalidRequest):
            await world.ask(world.load(CHAIN), 1, outputs=("nothing",))
        assert not ended(world)

    scenario(play)


def test_the_rows_of_trees_are_those_of_each_steps_kind() -> None:
    async def main() -> None:
        world = Trees()
        await world.send(world.load(TREES), tree(6))
        (event,) = ended(world)
        assert event.rows == 6
        assert [each[:3] for each in event.steps] == [("leaves", 6, 6), ("nodes", 5, 5), ("scores", 1, 1)]
        await world.end()

    run_in_fake_time(main())
