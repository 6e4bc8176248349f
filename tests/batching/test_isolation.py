import asyncio
from math import inf

import pytest

from app.batching.batch import BatchInFlight, Execution, RowCountMismatch
from app.batching.batcher import Batcher
from app.batching.isolation import Isolation, Isolations, Suspects
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.batching.waiting.lane import Lane
from app.core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    OutOfMemory,
    Overloaded,
    ServingError,
    WouldBeLate,
)
from app.core.reply import Answer
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    infer,
    pending,
    rows_of,
    run_in_fake_time,
)

REJECTED = InvalidRequest("x must not be negative")


def batch_of(requests: int) -> BatchInFlight:
    function = batch_function(FakeFunction(), 64)
    function.requests_under_way = requests
    return BatchInFlight(Lane(KEY, function), [pending(float(each)) for each in range(requests)], "idle")


def isolation_of(batch: BatchInFlight, rejection: ServingError) -> Isolation:
    queue = RequestQueue(100)
    queue.take_room(KEY.model, batch.requests)
    return Isolation(batch, rejection, queue)


def rejected(error: ServingError = REJECTED) -> Execution:
    return Execution([], 0.0, 1.0, 0, 0.0, error)


def group_of(isolation: Isolation) -> BatchInFlight:
    group = isolation.next_group()
    assert group is not None
    return group


def started_group(isolations: Isolations) -> BatchInFlight:
    """The next group of the isolation whose turn it is, which starts."""
    isolation = isolations.next(others_due=False)
    assert isolation is not None
    group = isolations.next_group(isolation)
    assert group is not None
    return group


def test_the_first_group_is_the_first_half() -> None:
    batch = batch_of(10)
    assert group_of(isolation_of(batch, REJECTED)).requests == batch.requests[:5]


def test_who_left_meanwhile_is_in_no_group_and_leaves_the_function() -> None:
    batch = batch_of(6)
    isolation = isolation_of(batch, REJECTED)
    for request in batch.requests[:3]:
        request.fail(DeadlineExceeded("late"))
    assert group_of(isolation).requests == batch.requests[3:4]
    assert batch.function.requests_under_way == 3
    assert [each.inputs == {} for each in batch.requests] == [True] * 3 + [False] * 3  # no tensors are kept


def test_if_all_left_there_is_no_group() -> None:
    batch = batch_of(2)
    isolation = isolation_of(batch, REJECTED)
    for request in batch.requests:
        request.fail(DeadlineExceeded("late"))
    assert isolation.next_group() is None
    assert batch.function.requests_under_way == 0


@pytest.mark.parametrize(("error", "sizes"), [(OutOfMemory(), [4, 2]), (RowCountMismatch(), [1])])
def test_groups_are_as_small_as_their_failures_ask(error: ServingError, sizes: list[int]) -> None:
    isolation = isolation_of(batch_of(8), error)
    for size in sizes:
        group = group_of(isolation)
        assert len(group.requests) == size
        isolation.record(group.requests, rejected(error))


def test_after_a_bad_request_was_found_groups_are_as_large_as_the_share_of_bad_ones_allows() -> None:
    isolation = isolation_of(batch_of(16), REJECTED)
    found = Execution([REJECTED], 0.0, 1.0, 0, 0.0)
    sizes = []
    for execution in (rejected(), rejected(), rejected(), found, rejected(), found):
        group = group_of(isolation)
        sizes.append(len(group.requests))
        isolation.record(group.requests, execution)
    assert sizes == [8, 4, 2, 1, 2, 1]


def sizes_of(isolation: Isolation, bad: set[int]) -> list[int]:
    """The sizes of its groups, until each request was answered. Requests have their place in the batch as arrival."""
    sizes: list[int] = []
    place = {request: number for number, request in enumerate(isolation.batch.requests)}
    while (group := isolation.next_group()) is not None:
        sizes.append(len(group.requests))
        invalid = any(place[request] in bad for request in group.requests)
        alone = Execution([REJECTED], 0.0, 1.0, 0, 0.0)
        good = Execution([{} for _ in group.requests], 0.0, 1.0, 0, 0.0)
        isolation.record(group.requests, (alone if sizes[-1] == 1 else rejected()) if invalid else good)
    return sizes


def test_what_is_left_of_a_group_whose_first_part_was_good_is_halved_as_it_has_the_bad_one() -> None:
    assert sizes_of(isolation_of(batch_of(16), REJECTED), {15}) == [8, 4, 2, 1, 1]


def test_groups_grow_again_while_no_further_bad_request_is_found() -> None:
    sizes = sizes_of(isolation_of(batch_of(64), REJECTED), {0})
    assert sizes[:6] == [32, 16, 8, 4, 2, 1]
    assert sizes[6:] == [2, 2, 4, 4, 4, 8, 8, 8, 16, 7]


def test_where_all_are_bad_requests_soon_go_one_by_one() -> None:
    sizes = sizes_of(isolation_of(batch_of(64), REJECTED), set(range(64)))
    assert len(sizes) < 64 + 2 * 7
    assert sizes[-56:] == [1] * 56


def test_requests_that_only_fail_together_go_one_by_one_after_three_failures_for_each_doubling() -> None:
    isolation = isolation_of(batch_of(64), REJECTED)
    failed, calls = 1, 1
    while (group := isolation.next_group()) is not None and calls < 1000:
        together = len(group.requests) > 1
        failed, calls = failed + together, calls + 1
        isolation.record(group.requests, rejected() if together else Execution([{}], 0.0, 1.0, 0, 0.0))
    assert (failed, calls) == (3 * 7, 3 * 7 + 64)  # 64 has 7 binary digits


def test_after_a_lack_of_memory_groups_stay_at_half() -> None:
    assert sizes_of(isolation_of(batch_of(64), OutOfMemory()), set()) == [32, 32]


def test_isolations_take_turns_among_each_other_and_with_others() -> None:
    isolations = Isolations(RequestQueue(100))
    first, second = batch_of(4), batch_of(4)
    assert isolations.record_end(first, rejected(), 5.0) is None
    assert isolations.record_end(second, rejected(), 6.0) is None
    assert isolations.waiting_since_s == 5.0
    assert isolations.waiting
    taken = isolations.next(others_due=True)
    assert taken is not None
    assert taken.batch is first
    assert isolations.next(others_due=True) is None
    assert isolations.next(others_due=True) is not None
    assert isolations.next(others_due=False) is None
    assert repr(isolations) == "<Isolations []>"


def test_the_oldest_isolation_is_finished_first() -> None:
    isolations, first, second = Isolations(RequestQueue(100)), batch_of(4), batch_of(4)
    isolations.record_end(first, rejected(), 5.0)
    isolations.record_end(second, rejected(), 6.0)
    order = []
    while isolations.open:
        group = started_group(isolations)
        order.append(isolations.part_of(group))
        isolations.record_end(group, Execution([{} for _ in group.requests], 0.0, 1.0, 0, 0.0), 7.0)
    assert order == [first] * 3 + [second] * 3


def test_what_all_groups_will_take_is_the_sum_over_the_isolations() -> None:
    isolations, batches = Isolations(RequestQueue(100)), [batch_of(8) for _ in range(3)]
    for batch in batches:
        batch.costs.record_call(4, 2.0)
        isolations.record_end(batch, rejected(), 5.0)
    assert isolations.expected_s == 3 * 4.0  # two groups of four each
    group = started_group(isolations)
    assert isolations.expected_s == 2.0 + 2 * 4.0
    for request in batches[0].requests:
        request.fail(DeadlineExceeded("late"))
    isolations.record_end(group, rejected(), 6.0)
    isolation = isolations.next(others_due=False)
    assert isolation is not None
    assert isolations.next_group(isolation) is None
    assert isolations.expected_s == 2 * 4.0
    while isolations.open:
        group = started_group(isolations)
        isolations.record_end(group, Execution([{} for _ in group.requests], 0.0, 1.0, 0, 0.0), 7.0)
    assert isolations.expected_s == 0.0


def test_isolations_are_under_way_while_their_last_group_is_computed() -> None:
    isolations, batch = Isolations(RequestQueue(100)), batch_of(2)
    isolations.record_end(batch, rejected(), 5.0)
    for last in (False, True):
        group = started_group(isolations)
        assert isolations.open
        assert isolations.part_of(group) is batch
        assert isolations.expected_s == 0.0
        ended = isolations.record_end(group, Execution([{}], 0.0, 1.0, 0, 0.0), 6.0)
        assert ended is (batch if last else None)
    assert not isolations.open
    assert isolations.part_of(batch) is None


def test_a_lost_group_counts_as_answered_and_ends_an_isolation_as_any_other() -> None:
    isolations, batch = Isolations(RequestQueue(100)), batch_of(2)
    isolations.record_end(batch, rejected(), 5.0)
    for last in (False, True):
        group = started_group(isolations)
        assert isolations.record_lost(group, 6.0) is (batch if last else None)
    assert not isolations.open


def test_what_its_groups_will_take_is_estimated() -> None:
    batch = batch_of(8)
    isolation = isolation_of(batch, REJECTED)
    assert isolation.expected_s == 0.0
    batch.costs.record_call(4, 2.0)
    assert isolation.expected_s == 4.0  # two groups of four
    assert repr(isolation).endswith("8 requests wait>")
    while isolation.next_group() is not None:
        continue
    assert isolation.expected_s == 0.0


def test_what_is_estimated_is_for_the_rows_that_still_wait() -> None:
    batch = batch_of(8)
    for rows in (1, 2, 4, 8, 16, 32, 64):
        batch.costs.record_call(rows, float(rows))
    isolation = isolation_of(batch, REJECTED)
    assert isolation.expected_s == 2 * 4.0
    first = group_of(isolation)
    assert isolation.expected_s == 4.0, "one group of four is left"
    isolation.record(first.requests, rejected())
    assert isolation.expected_s == 4 * 2.0, "four groups of two"
    for request in batch.requests[5:]:
        request.fail(DeadlineExceeded("late"))
    group_of(isolation)
    assert isolation.expected_s == 2 * 2.0, "two groups for three"


def test_groups_of_which_rows_are_no_whole_share_are_estimated_as_the_larger_one() -> None:
    batch = batch_of(8)
    batch.requests[0].rows = 2
    batch.costs.record_call(4, 1.0)
    batch.costs.record_call(8, 3.0)
    isolation, curve = isolation_of(batch, REJECTED), batch.costs.curve
    assert curve is not None
    assert curve.call_s(5) > curve.call_s(4)
    assert isolation.expected_s == 2 * curve.call_s(5)  # 9 rows in two groups


# --- in the batcher ---


class Scene:
    """A batcher over a device of one second a call, and when who was answered."""

    def __init__(
        self, devices: int = 1, *, inline_s: float = 0.0, in_order: bool = False, max_rows: int = 1000
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.start_s = self.loop.time()
        self.devices = [FakeDevice(name=f"fake:{number}", hardware=number) for number in range(devices)]
        self.batcher = Batcher(
            self.devices,
            WorkConserving(),
            BatcherOptions(max_rows, max_inline_s=inline_s, preserve_order=in_order),
            clock=self.loop.time,
        )
        self.model = FakeFunction()
        self.function = batch_function(self.model, 64)
        self.answered: list[tuple[float, float]] = []  # the value, and the seconds until its answer

    def send(self, value: float, timeout_s: float = inf, lane: str = "a") -> asyncio.Task[Answer | ServingError]:
        async def sent() -> Answer | ServingError:
            deadline_s = self.loop.time() + timeout_s
            call = infer(self.batcher, LaneKey("m", 1, lane), self.function, rows_of(value), 1, deadline_s)
            try:
                return await call
            except ServingError as error:
                return error
            finally:
                self.answered.append((value, self.loop.time() - self.start_s))

        return asyncio.create_task(sent())


def test_a_good_half_does_not_wait_for_the_rest() -> None:
    async def main() -> None:
        scene = Scene()
        await asyncio.gather(*[scene.send(float(value)) for value in (1, 2, 3, 4, 5, 6, 7, -8)])
        assert scene.answered[:4] == [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (4.0, 2.0)]
        assert scene.answered[-1] == (-8.0, max(at_s for _, at_s in scene.answered))
        assert scene.function.requests_under_way == 0

    run_in_fake_time(main())


def test_other_requests_wait_for_one_group_at_most() -> None:
    async def main() -> None:
        scene = Scene()
        bad = [scene.send(-1.0) for _ in range(16)]
        await asyncio.sleep(1.5)  # the batch failed, and its first group is computed
        waits = []
        for _ in range(5):
            sent_s = scene.loop.time()
            await scene.send(1.0, lane="b")
            waits.append(scene.loop.time() - sent_s)
        assert waits == [1.5, 2.0, 2.0, 2.0, 2.0]
        await asyncio.gather(*bad)

    run_in_fake_time(main())


def test_who_expires_or_is_cancelled_between_groups_is_never_computed_again() -> None:
    async def main() -> None:
        scene = Scene()
        tasks = [scene.send(value) for value in (-1.0, -2.0, -3.0, -4.0)]
        late, leaving = scene.send(5.0, timeout_s=1.5), scene.send(6.0)
        await asyncio.sleep(1.2)
        leaving.cancel()
        assert isinstance(await late, DeadlineExceeded)
        await asyncio.gather(*tasks)
        after = [value for call in scene.model.calls[1:] for value in call]
        assert not {5.0, 6.0} & set(after)
        assert scene.function.requests_under_way == 0

    run_in_fake_time(main())


@pytest.mark.parametrize("inline_s", [0.0, 2.0])
def test_a_drain_waits_for_the_last_group(inline_s: float) -> None:
    async def main() -> None:
        scene = Scene(inline_s=inline_s)
        tasks = [scene.send(value) for value in (1.0, -2.0, 3.0, -4.0)]
        await asyncio.sleep(0)
        await scene.batcher.drain()
        assert all(task.done() for task in tasks)
        assert scene.batcher.failures(0.0) == []

    run_in_fake_time(main())


def test_a_group_that_no_device_takes_fails_and_the_others_go_on_when_it_does() -> None:
    async def main() -> None:
        scene = Scene()
        tasks = [scene.send(value) for value in (1.0, 2.0, -3.0, 4.0)]
        await asyncio.sleep(0.5)
        start = scene.devices[0].start

        def take_no_work(*_: object) -> None:
            scene.devices[0].start = start  # type: ignore[method-assign] - once
            raise RuntimeError("away")

        scene.devices[0].start = take_no_work  # type: ignore[method-assign] - of this device alone
        kinds = [type(outcome) for outcome in await asyncio.gather(*tasks)]
        assert kinds == [InferenceFailed, InferenceFailed, InvalidRequest, Answer]

    run_in_fake_time(main())


def test_with_in_order_completion_a_later_batch_waits_for_the_groups_of_an_earlier_one() -> None:
    async def main() -> None:
        scene = Scene(devices=2, in_order=True)
        first = [scene.send(value) for value in (1.0, -2.0, 3.0, 4.0)]
        await asyncio.sleep(0.5)
        later = scene.send(5.0)
        await asyncio.gather(*first, later)
        assert [value for value, _ in scene.answered] == [1.0, -2.0, 3.0, 4.0, 5.0]
        await scene.batcher.drain()
        assert not scene.batcher.completion.order

    run_in_fake_time(main())


def test_admission_counts_the_calls_of_rejected_batches() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.send(1.0)
        bad = [scene.send(-1.0) for _ in range(16)]
        await asyncio.sleep(1.5)  # the batch failed; its first group is computed
        others = [scene.send(1.0, lane=lane) for lane in "bcde"]
        outcome = await scene.send(1.0, timeout_s=6.0, lane="f")  # 4 calls before its own, and 4 groups between them
        assert isinstance(outcome, WouldBeLate)
        assert isinstance(await scene.send(1.0, timeout_s=12.0, lane="f"), Answer)
        await asyncio.gather(*bad, *others)

    run_in_fake_time(main())


def test_what_is_isolated_keeps_its_room_in_the_queue_until_it_is_answered() -> None:
    async def main() -> None:
        scene = Scene(max_rows=8)
        room = scene.batcher.queue.room
        batch = [scene.send(value, timeout_s=3.2 if value == 5.0 else inf) for value in (1.0, -2.0, 3.0, 4.0, 5.0, 6.0)]
        await asyncio.sleep(0.5)
        assert room.rows == 0, "a batch in flight takes none"
        await asyncio.sleep(1.0)
        assert room.rows == 6, "it was rejected"
        later = [scene.send(7.0) for _ in range(3)]
        assert isinstance(await later[2], Overloaded)
        for outcome in await asyncio.gather(*batch, *later[:2]):
            assert not isinstance(outcome, Overloaded)
        assert (room.rows, scene.batcher.queue.bytes) == (0, 0)

    run_in_fake_time(main())


def test_a_drain_ends_although_no_device_takes_the_last_group() -> None:
    async def main() -> None:
        scene = Scene(in_order=True)
        tasks = [scene.send(value) for value in (-1.0, -2.0)]
        await asyncio.sleep(0.5)
        draining = asyncio.create_task(scene.batcher.drain())
        await asyncio.sleep(1.0)  # the first group is computed
        scene.devices[0].broken = "away"
        await asyncio.sleep(5.0)
        assert all(task.done() for task in tasks)
        assert scene.batcher.idle
        assert draining.done()
        assert not scene.batcher.completion.order, "the batch holds no other's answers"

    run_in_fake_time(main())


def test_an_isolation_whose_last_requests_left_is_over() -> None:
    async def main() -> None:
        scene = Scene(in_order=True)
        bad = [scene.send(value) for value in (-1.0, -2.0)]
        await asyncio.sleep(0.5)
        other = scene.send(3.0, lane="b")
        await asyncio.sleep(2.0)  # the first group was computed, and the other lane has its turn
        bad[1].cancel()
        await scene.batcher.drain()
        assert scene.loop.time() - scene.start_s == 3.0
        assert isinstance(await other, Answer)
        assert scene.model.calls == [[-1.0, -2.0], [-1.0], [3.0]]
        assert not scene.batcher.completion.order
        assert scene.batcher.failures(0.0) == []

    run_in_fake_time(main())


def test_a_reply_of_a_group_is_given_once() -> None:
    async def main() -> None:
        scene = Scene()
        replies = [FakeReply() for _ in range(4)]
        for value, reply in zip((1.0, -2.0, -3.0, 4.0), replies, strict=True):
            scene.batcher.submit(KEY, scene.function, rows_of(value), 1, reply)
        await scene.batcher.drain()
        assert [[type(each) for each in reply.answers] for reply in replies] == [
            [Answer], [InvalidRequest], [InvalidRequest], [Answer],
        ]  # fmt: skip

    run_in_fake_time(main())


# --- callers that sent bad requests ---


def test_a_caller_is_remembered_for_some_seconds_after_its_last_bad_request() -> None:
    suspects = Suspects()
    assert not suspects.until_s
    suspects.note("a", 0.0)
    suspects.note("a", 5.0)
    assert [suspects.has("a", now) for now in (5.0, 14.9, 15.0)] == [True, True, False]
    assert not suspects.has("b", 5.0)
    assert not suspects.until_s


def test_of_too_many_callers_the_one_that_was_noted_first_is_forgotten() -> None:
    suspects = Suspects()
    suspects.note("again", 0.0)
    for number in range(1023):
        suspects.note(str(number), 0.0)
    suspects.note("again", 0.0)
    suspects.note("new", 0.0)
    assert [suspects.has(caller, 1.0) for caller in ("again", "0", "1", "new")] == [True, False, True, True]


def test_who_has_no_name_is_not_remembered() -> None:
    suspects = Suspects()
    suspects.note("", 0.0)
    assert not suspects.has("", 0.0)


def test_so_many_callers_are_remembered_at_most() -> None:
    suspects = Suspects()
    suspects.note("often", 0.0)
    for number in range(2000):
        suspects.note(str(number), 0.0)
        suspects.note("often", 0.0)
    assert suspects.has("often", 0.0)
    assert [suspects.has(str(number), 0.0) for number in (0, 1999)] == [False, True]
