"""What protocols ask of a model beside answers: coalescing, padding, rows, costs, deadlines, priorities."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.shapes.padding import ShapePadding
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import DeadlineExceeded, InvalidRequest, SignatureNotFound
from app.core.inference import Array, InferenceRequest, ModelSignature, TensorSpec
from app.core.reply import COMPLETED, Answer
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, FakeReply, rows_of, run_in_fake_time

QUICK_S = 2.0
SIZES = BatchSizes.powers_of_two(4)
PADDING = {"x": ("n",)}


class World:
    """A model on one device, whose calls take a second; on the event loop, where allowed, they take no time."""

    def __init__(
        self, *, inline_s: float = 0.0, fair_callers: bool = False, costs: Mapping[str, Mapping[int, float]] = {}
    ) -> None:
        self.loaded = FakeLoadedModel()
        free = TensorSpec("x", np.dtype(np.float32), (None, None))
        self.loaded.signatures = {
            **self.loaded.signatures,
            "free": ModelSignature("free", {"x": free}, {"y": free}),
        }
        self.padding = ShapePadding(PADDING, {"y": ("n",)}, {"x": 0})
        self.device = FakeDevice()
        self.batcher = Batcher(
            [self.device],
            WorkConserving(),
            BatcherOptions(100, max_inline_s=inline_s, fair_callers=fair_callers),
            clock=asyncio.get_running_loop().time,
        )
        placement = RequestPlacement("m", 3, self.loaded, SIZES, paddings={"free": self.padding}, costs=costs)
        self.model = Model(placement, self.batcher)

    def ask(self, inputs: dict[str, Array], *, priority: int = 0, timeout_s: float = 1e6, **more: str) -> "Asked":
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        request = InferenceRequest(inputs, priority=priority, deadline_s=deadline_s, **more)
        return asyncio.create_task(self.model.infer(request))

    async def know(self) -> None:
        """How long calls of each size take."""
        for rows in SIZES.allowed:
            await self.ask(rows_of(1.0, rows))


Asked = asyncio.Task


def play(scenario: Callable[[World], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        await scenario(World(**more))

    run_in_fake_time(main())


def test_a_model_names_its_signatures_and_sizes() -> None:
    async def scenario(world: World) -> None:
        assert world.model.sizes == SIZES
        larger = BatchSizes.powers_of_two(64)
        assert Model(world.model._placement, world.batcher, larger).sizes == larger
        assert world.model.signature("pair") is world.loaded.signatures["pair"]
        with pytest.raises(SignatureNotFound, match='"none" not found'):
            world.model.signature("none")

    play(scenario)


@pytest.mark.parametrize(("priority", "order"), [(1, [1, 4, 2, 3]), (5, [1, 2, 3, 4]), (0, [1, 2, 3, 4])])
def test_a_priority_overtakes_and_none_is_the_default(priority: int, order: list[int]) -> None:
    async def scenario(world: World) -> None:
        asked = [world.ask(rows_of(1.0, 4))]
        await asyncio.sleep(0.1)
        for value, own in ((2.0, 5), (3.0, 0), (4.0, priority)):
            asked.append(world.ask(rows_of(value, 4), priority=own))
            await asyncio.sleep(0.1)
        await asyncio.gather(*asked)
        assert [call[0] for call in world.loaded.function.calls] == order

    play(scenario)


def test_bulk_work_waits_for_those_that_come_later() -> None:
    async def scenario(world: World) -> None:
        asked = [world.ask(rows_of(1.0, 4))]
        await asyncio.sleep(0.1)
        asked.append(world.ask(rows_of(2.0, 4), priority=-1))
        await asyncio.sleep(0.1)
        asked.append(world.ask(rows_of(3.0, 4)))
        await asyncio.gather(*asked)
        assert [call[0] for call in world.loaded.function.calls] == [1, 3, 2]

    play(scenario)


def test_a_request_is_not_answered_after_its_deadline() -> None:
    async def scenario(world: World) -> None:
        first = world.ask(rows_of(1.0))
        await asyncio.sleep(0.1)
        late = world.ask(rows_of(2.0), timeout_s=0.5)
        with pytest.raises(DeadlineExceeded):
            await late
        await first
        assert world.loaded.function.calls == [[1.0]]

    play(scenario)


def test_rows_are_coalesced_where_calls_are_known_to_be_quick() -> None:
    async def scenario(world: World) -> None:
        model = world.model
        assert model.coalescable_rows("serving_default") == 0  # no call was made yet
        await world.know()
        assert model.coalescable_rows("serving_default") > 0
        assert model.coalescable_rows("pair") == model.coalescable_rows("none") == 0

        calls = len(world.loaded.function.calls)
        world.device.broken = "A device was used"
        reply = FakeReply()
        now = asyncio.get_running_loop().time()
        assert model.submit_coalesced(InferenceRequest(rows_of(5.0, 3)), [now, now], reply) is not None
        (answer,) = reply.answers
        assert isinstance(answer, Answer)
        assert answer.outputs["y"].tolist() == [[10.0, 10.0]] * 3
        assert len(world.loaded.function.calls) == calls + 1

        wrong = InferenceRequest({"z": np.zeros((1, 2), np.float32)})
        rejected = FakeReply()
        assert model.submit_coalesced(wrong, [now], rejected) is COMPLETED
        (error,) = rejected.answers
        assert isinstance(error, InvalidRequest)

        world.device.broken = ""
        await model.close()
        assert model.coalescable_rows("serving_default") == 0

    play(scenario, inline_s=QUICK_S)


def test_what_is_coalesced_and_has_to_wait_must_be_in_time_and_waits_for_its_callers_turn() -> None:
    async def scenario(world: World) -> None:
        await world.know()
        calls = len(world.loaded.function.calls)
        first = world.ask({"x": rows_of(1.0)["x"], "z": rows_of(1.0)["x"]}, signature="pair")  # on the device
        await asyncio.sleep(0.1)
        now = asyncio.get_running_loop().time()
        reply = FakeReply()
        late = InferenceRequest(rows_of(9.0, 4), deadline_s=now + 0.5)
        assert world.model.submit_coalesced(late, [now] * 4, reply) is None
        asked = [world.ask(rows_of(value, 4), caller="a") for value in (2.0, 3.0)]
        await asyncio.sleep(0.1)
        patient = InferenceRequest(rows_of(4.0, 4), deadline_s=now + 1e6, caller="a")
        assert world.model.submit_coalesced(patient, [now] * 4, reply) is not None
        asked.append(world.ask(rows_of(5.0, 4), caller="b"))
        await asyncio.gather(first, *asked)
        assert [type(answer) for answer in reply.answers] == [Answer]
        # Calls on the event loop take no time here, so nothing tells whose turn it is: 5 may come anywhere.
        computed = [call[0] for call in world.loaded.function.calls[calls:]]
        assert [value for value in computed if value != 5] == [2, 3, 4]
        assert sorted(computed) == [2, 3, 4, 5]

    play(scenario, inline_s=QUICK_S, fair_callers=True)


def test_where_calls_are_not_quick_nothing_is_coalesced() -> None:
    async def scenario(world: World) -> None:
        await world.know()
        assert world.model.coalescable_rows("serving_default") == 0

    play(scenario, inline_s=0.5)


def test_more_rows_than_a_batch_holds_are_not_coalesced() -> None:
    async def scenario(world: World) -> None:
        await world.know()
        reply, rows = FakeReply(), 1 + world.model.coalescable_rows("serving_default")
        assert world.model.submit_coalesced(InferenceRequest(rows_of(5.0, rows)), [0.0] * rows, reply) is None
        assert not reply.answers

    play(scenario, inline_s=QUICK_S)


def test_which_signatures_pad() -> None:
    async def scenario(world: World) -> None:
        model = world.model
        assert [model.pads(name) for name in ("free", "pair", "none")] == [True, False, False]
        world.padding.enabled = False
        assert not model.pads("free")

    play(scenario)


def test_outputs_follow_the_rows_until_a_call_shows_that_they_do_not() -> None:
    async def scenario(world: World) -> None:
        model = world.model
        assert model.follows_rows("uneven")
        assert (await world.ask(rows_of(1.0))).outputs["y"].shape == (1, 2)
        await world.ask(rows_of(1.0, 2), signature="uneven")
        assert not model.follows_rows("uneven")
        assert model.follows_rows("serving_default")
        assert model.follows_rows("free")

    play(scenario)


def test_a_request_that_ran_alone_says_nothing_of_the_rows_of_others() -> None:
    async def scenario(world: World) -> None:
        known = world.model.signatures["serving_default"]
        world.model._placement.signatures = {"serving_default": replace(known, finite_only="it loops")}
        await asyncio.gather(world.ask(rows_of(1.0)), world.ask(rows_of(np.inf)))
        assert world.model.follows_rows("serving_default")

    play(scenario)


def test_what_ends_the_padding_says_nothing_of_the_rows() -> None:
    async def scenario(world: World) -> None:
        def run(signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            return {"y": inputs["x"][:, :2]}

        world.loaded.run = run  # type: ignore[method-assign]  # of a fake
        await asyncio.gather(*[world.ask({"x": np.ones((1, width), np.float32)}, signature="free") for width in (3, 5)])
        assert not world.model.pads("free")
        assert world.model.follows_rows("free")

    play(scenario)


def test_what_was_timed_at_warm_up_is_told_until_calls_say_more() -> None:
    costs = {"pair": {1: 0.5, 4: 1.5}, "total": {1: 0.1}, "serving_default": {}}

    async def scenario(world: World) -> None:
        found = {each.signature: each for each in world.model.learnt_costs()}
        assert found.keys() == {"pair", "total"}
        pair = found["pair"]
        assert (pair.outputs, pair.shape, pair.bucket) == ((), ((2,), (2,)), False)
        assert set(pair.measured) == {1, 4}
        assert [pair.curve.call_s(rows) for rows in (1, 4)] == [0.5, 1.5]
        assert found["total"].shape == ((),)

        await world.ask({"x": rows_of(1.0)["x"], "z": rows_of(2.0)["x"]}, signature="pair", outputs=("w",))
        told = [(each.signature, each.outputs) for each in world.model.learnt_costs()]
        assert told == [("pair", ("w",)), ("total", ())]

    play(scenario, costs=costs)


def test_a_size_that_the_signature_leaves_open_is_told_as_0() -> None:
    async def scenario(world: World) -> None:
        (found,) = world.model.learnt_costs()
        assert (found.signature, found.shape) == ("free", ((0,),))

    play(scenario, costs={"free": {1: 0.5}})


def test_what_calls_of_a_shape_cost_is_told_after_the_first_of_them_and_not_while_it_is_guessed() -> None:
    async def scenario(world: World) -> None:
        world.padding.enabled = False

        def told() -> list[tuple[int, ...]]:
            return sorted(shape for each in world.model.learnt_costs() for shape in each.shape)

        await world.ask({"x": np.ones((1, 4), np.float32)}, signature="free")
        assert told() == [(4,)]
        near, far = [world.ask({"x": np.ones((1, width), np.float32)}, signature="free") for width in (5, 1000)]
        await asyncio.sleep(0.1)
        assert told() == [(4,)]
        await near
        assert told() == [(4,), (5,)]
        await far
        assert told() == [(4,), (5,), (1000,)]

    play(scenario)


def test_closing_again_waits_no_more_and_frees_once() -> None:
    async def scenario(world: World) -> None:
        closed = []
        world.model.release = lambda: closed.append(1)
        await world.ask(rows_of(1.0))
        await world.model.close()
        await world.model.close()
        assert closed == [1]
        assert repr(world.model) == "<Model m/3, closing, 0 open requests>"

    play(scenario)


def test_callers_are_told_apart_where_they_share() -> None:
    async def scenario(world: World) -> None:
        asked = []
        for value, caller in ((1.0, "a"), (2.0, "a"), (3.0, "a"), (4.0, "a"), (5.0, "b")):
            asked.append(world.ask(rows_of(value, 4), caller=caller))
            await asyncio.sleep(0.01)
        await asyncio.gather(*asked)
        order = [call[0] for call in world.loaded.function.calls]
        assert order.index(5) < order.index(3)

    play(scenario, fair_callers=True)


def test_what_was_accepted_before_a_placement_is_adopted_is_answered_as_it_was_placed() -> None:
    async def scenario(world: World) -> None:
        model = world.model
        before = world.ask(rows_of(1.0, 4))
        await asyncio.sleep(0.1)
        larger = BatchSizes.powers_of_two(8)
        other = FakeLoadedModel()
        adopted = RequestPlacement("m", 3, other, larger)
        model.adopt(adopted)
        assert model.signatures is adopted.signatures
        after = world.ask(rows_of(3.0, 8))
        await asyncio.sleep(0.1)
        assert repr(model) == "<Model m/3, 2 open requests>"
        closing = asyncio.create_task(model.close())
        await asyncio.sleep(0.1)
        assert not closing.done()
        assert model.closing
        model.adopt(RequestPlacement("m", 3, FakeLoadedModel(), SIZES))
        assert model.signatures is adopted.signatures
        answers = await asyncio.gather(before, after)
        assert [answer.outputs["y"][0, 0] for answer in answers] == [2.0, 6.0]
        assert world.loaded.function.calls == [[1.0] * 4]
        assert other.function.calls == [[3.0] * 8]
        await closing

    play(scenario)


def test_a_placement_without_requests_is_forgotten_when_another_is_adopted() -> None:
    async def scenario(world: World) -> None:
        await world.ask(rows_of(1.0))
        for _ in range(3):
            world.model.adopt(RequestPlacement("m", 3, FakeLoadedModel(), SIZES))
        assert world.model._earlier == []
        assert not world.model.closing

    play(scenario)


def test_what_was_found_to_change_answers_is_not_used_by_the_placement_that_is_adopted() -> None:
    async def scenario(world: World) -> None:
        paddings = {name: ShapePadding(PADDING, {"y": ("n",)}, {"x": 0}) for name in ("free", "pair")}
        world.model._placement.stop("free", "padding")
        world.model.adopt(RequestPlacement("m", 3, world.loaded, SIZES, paddings=paddings))
        assert [world.model.pads(signature) for signature in paddings] == [False, True]

    play(scenario)


def test_a_version_that_closes_leaves_its_room_to_others() -> None:
    async def scenario(world: World) -> None:
        left: list[str] = []
        world.batcher.queue.room.remove_version = left.append  # type: ignore[method-assign]  # the test listens
        await world.model.close()
        await world.model.close()
        assert left == ["m"]

    play(scenario)
