import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

import ml_dtypes  # noqa: F401 - names bfloat16
import numpy as np
import pytest

from app.batching.batch import BatchInFlight, Execution, run_together
from app.batching.batcher import Batcher
from app.batching.dispatch.shadow_check import SHARE, Sample, ShadowChecks, check, same
from app.batching.dispatch.spare_device import SpareDevice
from app.batching.function import BatchFunction, PlainWay
from app.batching.request import PendingRequest
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.ragged import RaggedRows
from app.batching.state import BatcherOptions
from app.batching.waiting.lane import Lane
from app.core.agreement import TF32_TOLERANCES, TOLERANCES
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.events import BatchExecuted, Event, ShadowChecked
from app.core.inference import Array, string_array
from app.core.reply import Outcome
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import KEY, FakeDevice, FakeReply, infer, rows_of, run_in_fake_time

T = TypeVar("T")
Run = Callable[[Mapping[str, Array]], dict[str, Array]]

PADDING = ShapePadding({"x": ("n",)}, {"y": ()}, {"x": 0.0})


def double(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": 2 * inputs["x"]}


def total(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": inputs["x"].sum(1)}


def mean(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": inputs["x"].mean(1)}


def centred(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": inputs["x"] - inputs["x"].mean(0) * (len(inputs["x"]) > 1)}


def sample(plain: Run, answer: Any, run: Run | None = None, **more: Any) -> Sample:
    """A request of one row, computed in a call of 4."""
    padded = more.get("shape") is not None
    function = BatchFunction(run or plain, BatchSizes((1, 4)), padding=PADDING if padded else None)
    x = np.array([[1.0, 2.0]], np.float32)
    outputs = {"y": np.array(answer, np.float32)}
    values = {"own_rows": 1, "rows": 4, "shape": None, "scales": {}, **more}
    return Sample(function, PlainWay(plain, lambda _: None), {"x": x}, outputs, **values)


def test_what_is_guilty_is_found_by_changing_one_thing_at_a_time() -> None:
    assert check(sample(double, [[2, 4]])) == "agrees"
    assert check(sample(double, [[2, 5]], run=lambda inputs: {"y": 2 * inputs["x"] + 1})) == "variant"
    assert check(sample(mean, [0.75], shape=((4,),))) == "padding"
    assert check(sample(total, [3], shape=((4,),))) == "agrees"
    assert check(sample(centred, [[-1, -2]])) == "sharing"


def test_neighbours_are_guilty_of_what_neither_rows_of_its_own_nor_padding_change() -> None:
    def crowd(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": inputs["x"].sum(1) + (len(inputs["x"]) > 1)}

    def compared(inputs: Mapping[str, Array]) -> dict[str, Array]:
        totals = inputs["x"].sum(1)
        return {"y": 2 * totals - totals.mean()}

    for shape in (None, ((4,),)):
        assert check(sample(crowd, [4], shape=shape)) == "sharing"
        assert check(sample(compared, [9], shape=shape)) == "sharing"


def test_a_request_that_ran_alone_differs_by_the_variant_only() -> None:
    assert check(sample(double, [[2, 5]], shared=False)) == "variant"


def test_of_a_call_that_requests_shared_the_variant_is_innocent_though_sharing_has_stopped_since() -> None:
    shared = sample(centred, [[-1, -2]])
    shared.function.batchable = False
    assert check(shared) == "sharing"

    # Outputs that are padded with their inputs are cut to the size of the request before they are compared.
    longer = sample(centred, [[-1, -2]], shape=((4,),))
    longer.function.padding = ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0.0})
    assert check(longer) == "sharing"


def test_a_model_whose_equal_calls_differ_says_nothing() -> None:
    random = np.random.default_rng(1)
    assert check(sample(lambda inputs: {"y": inputs["x"] + random.random()}, [[2, 4]])) == "random"


def test_what_the_model_rejects_alone_or_fails_at_says_nothing() -> None:
    def reject(_: Mapping[str, Array]) -> dict[str, Array]:
        raise InvalidRequest("no")

    def fail(_: Mapping[str, Array]) -> dict[str, Array]:
        raise ZeroDivisionError

    assert check(sample(reject, [[2, 4]])) == check(sample(fail, [[2, 4]])) == "failed"


def test_answers_may_lie_as_far_apart_as_the_device_computes() -> None:
    checked = sample(double, [[2, 4.1]])
    assert check(checked) != "agrees"
    assert check(checked._replace(plain=checked.plain._replace(tolerances=TF32_TOLERANCES))) == "agrees"


def test_a_sum_that_cancels_out_is_compared_with_what_is_usual() -> None:
    small, rounded = {"y": np.array([1e-6], np.float32)}, {"y": np.array([2e-6], np.float32)}
    assert same(small, rounded, {"y": 1.0})
    assert not same(small, rounded, {})
    assert same({"y": np.array([np.nan])}, {"y": np.array([np.nan])}, {})
    assert not same({"y": np.array([1])}, {"y": np.array([2])}, {"y": 1e9})


def test_answers_of_other_names_shapes_or_values_are_not_the_same() -> None:
    answer = {"y": np.array([1.0, 2.0], np.float32), "n": np.array([3])}
    assert same(answer, {"n": np.array([3]), "y": np.array([1.0, 2.0], np.float32)}, {})
    for other in (
        {"y": answer["y"]},
        {**answer, "more": np.array([1])},
        {**answer, "y": answer["y"][:1]},
        {**answer, "y": answer["y"][None]},
        {**answer, "y": answer["y"].astype(np.float64)},
        {**answer, "y": np.array([1.0, 2.1], np.float32)},
        {**answer, "n": np.array([4])},
    ):
        assert not same(answer, other, {})


class Watched:
    """A batcher on one device, whose calls take a second, with shadow checks."""

    def __init__(self, plain: Run | None, run: Run = double, devices: int = 1) -> None:
        self.events: list[Event] = []
        self.stopped: list[str] = []
        self.plain_calls = 0
        self.function = BatchFunction(run, BatchSizes((1, 2, 4)))
        if plain is not None:
            self.function.plain = PlainWay(self._counted(plain), self.stopped.append)
        slots = [FakeDevice(1.0) for _ in range(devices)]
        clock = asyncio.get_running_loop().time
        self.batcher = Batcher(slots, WorkConserving(), BatcherOptions(64, admission=False), self.events.append, clock)

    def _counted(self, plain: Run) -> Run:
        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            self.plain_calls += 1
            return plain(inputs)

        return run

    async def ask(self, value: float = 1.0, count: int = 1) -> list[list[float]]:
        answers = await asyncio.gather(
            *[infer(self.batcher, KEY, self.function, rows_of(value + n), 1) for n in range(count)]
        )
        return [answer.outputs["y"][0].tolist() for answer in answers]

    def checks(self) -> list[ShadowChecked]:
        return [event for event in self.events if isinstance(event, ShadowChecked)]


def test_checks_take_no_more_than_their_share_and_one_check() -> None:
    async def main() -> None:
        watched = Watched(double)
        for _ in range(900):
            await watched.ask()
            calls_s = sum(event.compute_s for event in watched.events if isinstance(event, BatchExecuted))
            spent_s = sum(event.seconds for event in watched.checks())
            assert spent_s <= SHARE * calls_s + 1.0
        assert {event.result for event in watched.checks()} == {"agrees"}
        assert 4 <= len(watched.checks()) <= 6

    run_in_fake_time(main())


def test_while_requests_wait_a_check_waits_for_a_minute() -> None:
    async def main() -> None:
        watched = Watched(double)
        await watched.ask()
        await asyncio.sleep(5.0)
        watched.batcher.state.slots.called_s = 1e6
        await watched.ask(count=64)
        assert len(watched.checks()) == 1, "16 calls, and always somebody waited"
        await asyncio.sleep(5.0)
        assert len(watched.checks()) == 2, "the last one was checked"
        watched.batcher.shadow._device.last_s -= 60.0
        await watched.ask(count=12)
        assert len(watched.checks()) == 3

    run_in_fake_time(main())


def test_what_is_guilty_is_stopped_once_and_told() -> None:
    async def main() -> None:
        watched = Watched(double, run=lambda inputs: {"y": 3 * inputs["x"]})
        watched.batcher.state.slots.called_s = 1e6
        for _ in range(3):
            await watched.ask(count=3)
            await asyncio.sleep(9.0)
        assert [event.result for event in watched.checks()] == ["variant", "variant"]
        assert watched.stopped == ["variant"]
        assert watched.function.plain is None, "it differs without it, too: checks say nothing"

    run_in_fake_time(main())


def test_what_is_guilty_is_stopped_again_in_a_model_that_was_loaded_again() -> None:
    async def main() -> None:
        watched = Watched(double, run=lambda inputs: {"y": 3 * inputs["x"]})
        watched.batcher.state.slots.called_s = 1e6
        first = watched.function
        await watched.ask(count=3)
        await asyncio.sleep(9.0)
        watched.function = BatchFunction(first.run, first.sizes, plain=first.plain)
        await watched.ask(count=3)
        await asyncio.sleep(9.0)
        assert watched.stopped == ["variant", "variant"]
        assert watched.function.plain is not None

    run_in_fake_time(main())


def test_a_call_that_was_shared_counts_as_that_when_sharing_stops_before_its_end_is_looked_at() -> None:
    async def main() -> None:
        watched = Watched(centred, run=centred)
        asked = asyncio.create_task(watched.ask(count=4))
        await asyncio.sleep(0.5)
        watched.function.batchable = False  # a check of another function of the signature found sharing guilty
        await asked
        await asyncio.sleep(9.0)
        assert watched.stopped == ["sharing"]

    run_in_fake_time(main())


def test_a_random_model_is_not_checked_again() -> None:
    async def main() -> None:
        random = np.random.default_rng(1)
        watched = Watched(lambda inputs: {"y": inputs["x"] + random.random()})
        watched.batcher.state.slots.called_s = 1e6
        for _ in range(3):
            await watched.ask()
            await asyncio.sleep(9.0)
        assert [event.result for event in watched.checks()] == ["random"]
        assert watched.function.plain is None

    run_in_fake_time(main())


def test_a_signature_without_a_plain_way_is_never_checked() -> None:
    async def main() -> None:
        watched = Watched(None)
        await watched.ask(count=9)
        assert watched.checks() == []

    run_in_fake_time(main())


def test_the_answer_does_not_wait_for_the_check_and_arrays_may_be_used_again() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        watched = Watched(double, devices=2)
        begin_s = loop.time()
        assert await watched.ask(5.0) == [[10.0, 10.0]]
        assert loop.time() - begin_s == 1.0
        assert watched.function.requests_under_way == 1, "the model is not unloaded while it is checked"
        await asyncio.sleep(2.0)
        assert watched.function.requests_under_way == 0

    run_in_fake_time(main())


def test_each_request_of_a_call_has_its_turn_and_is_checked_alone() -> None:
    async def main() -> None:
        seen: list[list[float]] = []

        def plain(inputs: Mapping[str, Array]) -> dict[str, Array]:
            seen.append(inputs["x"][:, 0].tolist())
            return double(inputs)

        watched = Watched(plain)
        watched.batcher.state.slots.called_s = 1e6
        for _ in range(4):
            await watched.ask(value=5.0, count=4)
            await asyncio.sleep(9.0)
        assert {len(rows) for rows in seen} == {1}
        assert {rows[0] for rows in seen} >= {5.0, 6.0, 7.0}
        assert {event.result for event in watched.checks()} == {"agrees"}

    run_in_fake_time(main())


def test_a_request_that_failed_is_not_checked() -> None:
    async def main() -> None:
        def reject(_: Mapping[str, Array]) -> dict[str, Array]:
            raise InvalidRequest("no")

        watched = Watched(double, run=reject)
        watched.batcher.state.slots.called_s = 1e6
        for _ in range(3):
            with pytest.raises(InvalidRequest):
                await watched.ask()
            await asyncio.sleep(9.0)
        assert (watched.checks(), watched.plain_calls) == ([], 0)
        assert watched.function.requests_under_way == 0

    run_in_fake_time(main())


def test_a_batch_that_was_rejected_is_not_checked_and_its_time_counts(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def reject_pairs(inputs: Mapping[str, Array]) -> dict[str, Array]:
            if len(inputs["x"]) > 1:
                raise InvalidRequest("no")
            return double(inputs)

        watched = Watched(double, run=reject_pairs)
        watched.batcher.state.slots.called_s = 1e6
        assert await watched.ask(count=2) == [[2.0, 2.0], [4.0, 4.0]]
        assert not [record for record in caplog.records if record.exc_info]

    run_in_fake_time(main())


def test_what_is_large_is_learnt_from_the_answers_of_a_signature() -> None:
    """A difference of large numbers that cancels out is rounding beside what is usual there, and a fault elsewhere."""

    async def main(usual: float) -> list[str]:
        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            return {"y": inputs["x"] + np.float32(1e-6) * (inputs["x"] < 1e-3)}

        watched = Watched(lambda inputs: {"y": inputs["x"]}, run=run)
        watched.batcher.state.slots.called_s = 1e6
        for value in (usual, usual, usual, 1e-5):
            await watched.ask(value)
            await asyncio.sleep(9.0)
        return [event.result for event in watched.checks()]

    assert run_in_fake_time(main(1.0)) == ["agrees"] * 4
    assert run_in_fake_time(main(2e-3)) == ["agrees"] * 3 + ["variant"]


@pytest.mark.parametrize("total", [np.array(b"three", object), np.array(3), np.array(3.0, np.float32)])
def test_an_output_without_rows_is_compared_as_others(total: Array) -> None:
    desk = Desk(lambda inputs: {"y": total}, batchable=False)
    assert desk.sees_outcomes([PendingRequest({"x": floats(1.0)}, 1, FakeReply(), 0.0)], [{"y": total}])
    assert desk.found() == "agrees"


# --- which requests are checked, and as what ---


class Desk:
    """Shadow checks beside batches that a test makes up. A check ends when the test says so."""

    def __init__(self, run: Run = double, plain: Run | None = None, **more: Any) -> None:
        self.now = 0.0
        self.called_s = 0.0
        self.waits = False
        self.free: list[str] = ["a device", "another"]
        self.events: list[Any] = []
        self.function = BatchFunction(run, BatchSizes((1, 2, 4)), **more)
        self.function.plain = PlainWay(plain or run, lambda _: None)
        self.checks = ShadowChecks(
            SpareDevice(cast(Any, self), lambda: self.waits, lambda: self.now), self.events.append
        )
        self._lent: list[Callable[[], None]] = []

    def lends(self, function: BatchFunction) -> bool:
        return bool(self.free)

    def lend(self, work: Callable[[], T], done: Callable[[T], None], together: Collection[str] = ()) -> None:
        self._lent.append(lambda: done(work()))

    def sees(self, *requests: Array | Mapping[str, Array], seconds: float = 1e6, coalesced: bool = False) -> bool:
        """Whether one of the requests is checked, after a call that answered them in so many seconds."""
        sent = [each if isinstance(each, Mapping) else {"x": each} for each in requests]
        pending = [PendingRequest(each, len(next(iter(each.values()))), FakeReply(), 0.0) for each in sent]
        for request in pending:
            request.coalesced_s = (0.0,) * request.rows * coalesced
        return self.sees_outcomes(pending, list(run_together(self.function, pending)), seconds)

    def sees_outcomes(self, requests: list[PendingRequest], outcomes: list[Outcome], seconds: float = 1e6) -> bool:
        batch = BatchInFlight(Lane(KEY, self.function), requests, "idle")
        before = len(self._lent)
        self.called_s += seconds
        self.checks.observe(batch, Execution(outcomes, self.now, self.now + seconds, 0, 0.0))
        return len(self._lent) > before

    def found(self, seconds: float = 1.0) -> str:
        """The result of the check, which takes so many seconds."""
        self.now += seconds
        self._lent.pop()()
        result: str = self.events[-1].result
        return result


def floats(*values: float) -> Array:
    return np.array([[value, value] for value in values], np.float32).reshape(-1, 2)


def wrong_at(size: int) -> Run:
    """A variant that is wrong in calls of so many rows."""
    return lambda inputs: {"y": 2 * inputs["x"] + (len(inputs["x"]) == size)}


def test_a_check_begins_as_soon_as_its_share_allows() -> None:
    desk = Desk()
    assert desk.sees(floats(1), seconds=0.0), "one check is always allowed"
    assert desk.found(1.0) == "agrees"
    assert not desk.sees(floats(1), seconds=1 / SHARE - 1)
    assert desk.sees(floats(1), seconds=1.0)


def test_one_check_is_made_at_a_time_though_several_devices_are_free() -> None:
    desk = Desk()
    assert desk.sees(floats(1))
    assert not desk.sees(floats(1))
    assert desk.found() == "agrees"
    assert desk.sees(floats(1))


def test_no_check_begins_without_a_free_device_or_a_plain_way() -> None:
    desk = Desk()
    desk.free = []
    assert not desk.sees(floats(1))
    desk.free, desk.function.plain = ["a device"], None
    assert not desk.sees(floats(1))


def test_the_first_check_and_one_a_minute_are_made_although_requests_wait() -> None:
    desk = Desk()
    desk.waits = True
    assert desk.sees(floats(1))
    assert desk.found() == "agrees"
    desk.now += 59.9
    assert not desk.sees(floats(1))
    desk.now += 0.1
    assert desk.sees(floats(1))


def test_what_has_no_rows_or_failed_is_not_checked_and_its_neighbour_is_next() -> None:
    desk = Desk()
    assert not desk.sees(floats(), floats(1))
    assert desk.sees(floats(), floats(1))
    assert desk.found() == "agrees"
    requests = [PendingRequest({"x": floats(1)}, 1, FakeReply(), 0.0)] * 2
    outcomes: list[Outcome] = [InvalidRequest("no"), {"y": floats(2)}]
    assert not desk.sees_outcomes(requests, outcomes)
    assert desk.sees_outcomes(requests, outcomes)
    assert desk.found() == "agrees"


def test_a_variant_that_is_wrong_at_one_size_is_tried_at_the_size_of_the_call() -> None:
    desk = Desk(wrong_at(4), double)
    assert desk.sees(floats(1, 2), floats(3))
    assert desk.found() == "variant"


def test_inner_shapes_that_were_padded_are_tried_padded_and_unpadded() -> None:
    short, long = np.ones((1, 2), np.float32), np.ones((1, 4), np.float32)
    desk = Desk(mean, padding=PADDING)
    assert desk.sees(short, long)
    assert desk.found() == "padding"
    desk = Desk(total, padding=PADDING)
    assert desk.sees(short, long)
    assert desk.found() == "agrees"


def ragged_sums(inputs: Mapping[str, Array]) -> dict[str, Array]:
    ends = inputs["x_1"]
    if ends[-1] != len(inputs["x"]) or (np.diff(ends) < 0).any():
        raise InvalidRequest("these are no row splits")
    return {"y": np.diff(np.cumsum([0, *inputs["x"]])[ends])}


def test_ragged_rows_are_repeated_as_ragged_rows() -> None:
    """The variant is wrong in calls of 4 rows; the requests have 2 rows and 1."""

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": ragged_sums(inputs)["y"] + (len(inputs["x_1"]) == 5)}

    def found(run: Run) -> str:
        desk = Desk(run, ragged_sums, ragged=RaggedRows({"x": ("x_1",)}))
        first, second = (
            PendingRequest({"x": np.arange(ends[-1]), "x_1": np.array(ends)}, len(ends) - 1, FakeReply(), 0.0)
            for ends in ([0, 3, 5], [0, 1])
        )
        assert desk.sees_outcomes([first, second], list(run_together(desk.function, [first, second])))
        return desk.found()

    assert found(run) == "variant"
    assert found(ragged_sums) == "agrees"


def test_rows_that_a_lone_request_is_padded_with_count_as_others_that_share_its_call() -> None:
    def counts_rows(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": inputs["x"] + len(inputs["x"])}

    desk = Desk(counts_rows)
    assert desk.sees(floats(1, 2, 3)), "padded to 4 rows"
    assert desk.found() == "sharing"
    assert desk.sees(floats(1, 2)), "as many as it has"
    assert desk.found() == "agrees"


def test_of_coalesced_requests_one_row_is_checked() -> None:
    seen: list[int] = []

    def plain(inputs: Mapping[str, Array]) -> dict[str, Array]:
        seen.append(len(inputs["x"]))
        return double(inputs)

    desk = Desk(double, plain)
    assert desk.sees(floats(1, 2, 3), coalesced=True)
    assert (desk.found(), seen) == ("agrees", [1])
    desk = Desk(wrong_at(4), double)
    assert desk.sees(floats(1, 2, 3), coalesced=True)
    assert desk.found() == "variant"


def test_what_is_usual_follows_the_last_answers_and_not_one_of_them() -> None:
    def found(usual: int, small: int) -> set[str]:
        desk = Desk(
            lambda inputs: {"y": inputs["x"] + np.float32(1e-6) * (inputs["x"] < 1e-3)},
            lambda inputs: {"y": inputs["x"]},
        )
        results = set()
        for value in [1.0] * usual + [1e-5] * small:
            if desk.sees(floats(value)):
                results.add(desk.found(1e-3))
        return results

    assert found(40, 6) == {"agrees"}
    assert found(40, 12) == {"agrees", "variant"}


@pytest.mark.parametrize("name", TOLERANCES)
def test_sums_that_cancel_out_are_rounding_in_every_type(name: str) -> None:
    dtype, tolerance = np.dtype(name), TOLERANCES[name]

    def found(*values: float) -> str:
        desk = Desk(
            lambda inputs: {"y": (inputs["x"] + (inputs["x"] == dtype.type(tolerance)) * tolerance / 2).astype(dtype)},
            lambda inputs: {"y": inputs["x"]},
        )
        for value in values:
            assert desk.sees(np.array([[value]], dtype))
            result = desk.found()
        return result

    assert found(tolerance) == "variant"
    assert found(1.0, 1.0, 1.0, tolerance) == "agrees"


def test_answers_of_any_type_and_without_a_number_are_checked() -> None:
    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        return {
            "words": string_array([b"a"] * len(x)),
            "counts": np.full(len(x), 300, np.int16),
            "nothing": x * np.nan,
            "empty": x[:, :0],
        }

    desk = Desk(run)
    assert desk.sees(floats(1))
    assert desk.found() == "agrees"
