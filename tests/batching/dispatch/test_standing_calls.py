"""What stands ready outside the queue (nodes of trees) is computed as it is supplied, if that is quick."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from app.batching.function import PlainWay
from app.core.errors import InvalidRequest
from app.core.events import BatchExecuted
from tests.batching.batcher.batcher_bench import QUICK, Bench, scenario, turns
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function, request_now, rows_of


class Next(FakeReply):
    """Does something when it is answered."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self.then = then

    def set_result(self, result: object, /) -> None:
        super().set_result(result)
        self.then()


def quick_bench(**more: Any) -> Bench:
    """A batcher whose calls are made on the event loop, and whose function may be called twice."""
    bench = Bench(inline_s=2.0, **more)
    bench.function = batch_function(bench.model, initial_estimates=QUICK)
    bench.function.plain = PlainWay(FakeFunction(), lambda _: None)
    bench.batcher.shadow._spent_s = 1e9  # no shadow check is due
    return bench


def supply(bench: Bench, value: float, reply: FakeReply, rows: int = 1) -> bool:
    """As a fold does; returns whether it was computed at once."""
    steps, inputs = bench.batcher.steps, rows_of(value, rows)
    answer = steps.compute_supplied(KEY, bench.function, inputs, rows, "") if steps.computes_supplied else None
    if answer is None:
        steps.submit(KEY, bench.function, request_now(bench.batcher, inputs, rows, reply, arrival_s=bench.loop.time()))
        return False
    reply.set_result(answer)
    return True


def test_it_is_computed_as_it_is_supplied_if_that_is_quick_and_once_in_a_turn() -> None:
    async def main() -> None:
        bench, done = quick_bench(), list[bool]()
        bench.devices[0].broken = "A device was used"
        replies = [FakeReply() for _ in range(3)]
        bench.batcher.steps.when_free(
            lambda: done.extend([supply(bench, v, reply) for v, reply in enumerate(replies, 2)])
        )
        await turns()
        assert done == [True, False, False]  # what else it supplies is queued: sockets are read before that
        assert bench.model.calls == [[2], [3, 4]]
        assert [answer.outputs["y"][0, 0] for reply in replies for answer in reply.answers] == [4.0, 6.0, 8.0]
        assert not bench.function.requests_under_way

    scenario(main)


def test_what_is_counted_and_learnt_of_it_is_that_of_an_ordinary_call() -> None:
    async def main() -> None:
        told, answers, learnt = [], [], []
        for ordinary in (True, False):
            bench = quick_bench(tick_s=1e-6)
            reply = FakeReply()
            if ordinary:
                bench.batcher.steps.submit(
                    KEY,
                    bench.function,
                    request_now(bench.batcher, rows_of(5.0, 3), 3, reply, arrival_s=bench.loop.time()),
                )
            else:
                bench.batcher.steps.when_free(partial(supply, bench, 5.0, reply, 3))
            await turns()
            (event,) = [each for each in bench.events if isinstance(each, BatchExecuted)]
            assert event.compute_s > event.input_s + event.output_s > 0
            told.append(event._replace(compute_s=0.0, input_s=0.0, output_s=0.0, queue_s=[0.0] * len(event.queue_s)))
            (answer,) = reply.answers
            assert answer.timing.compute_s == event.compute_s
            answers.append((answer.outputs["y"].tolist(), answer.timing.rows))
            costs = bench.function.last_costs
            assert costs is not None
            learnt.append((list(costs.measured), costs._batches, bench.function.requests_under_way))
            assert sum(bench.batcher.busy_s().values()) == pytest.approx(event.compute_s)
        assert told[0] == told[1]._replace(queue_s=[0.0])
        assert answers[0] == answers[1]
        assert learnt[0] == learnt[1]

    scenario(main)


def test_it_gives_way_to_what_waits_and_shares_its_call() -> None:
    async def main() -> None:
        bench, done = quick_bench(), list[bool]()
        sent = bench.send(2.0)
        bench.batcher.steps.when_free(lambda: done.append(supply(bench, 3.0, FakeReply())))
        await turns()
        assert done == [False]
        assert bench.model.calls == [[2, 3]]
        await sent

    scenario(main)


def test_those_that_supply_in_one_turn_share_a_call() -> None:
    async def main() -> None:
        bench = quick_bench()
        for value in (2.0, 3.0):
            bench.batcher.steps.when_free(partial(supply, bench, value, FakeReply()))
        await turns()
        assert bench.model.calls == [[2, 3]]

    scenario(main)


def test_others_are_computed_between_two_calls() -> None:
    async def main() -> None:
        bench, left = quick_bench(), iter(range(10, 20))

        def offer() -> None:
            if (value := next(left, None)) is not None:
                supply(bench, float(value), Next(lambda: bench.batcher.steps.when_free(offer)))

        bench.batcher.steps.when_free(offer)
        await bench.send(2.0)
        assert len(bench.model.calls) <= 4
        await turns(20)
        assert len(bench.model.calls) >= 10

    scenario(main)


def test_one_that_fails_is_made_again_as_an_ordinary_call_that_tells_why() -> None:
    async def main() -> None:
        bench, reply = quick_bench(), FakeReply()
        bench.batcher.steps.when_free(partial(supply, bench, -1.0, reply))
        await turns()
        assert isinstance(reply.answers[0], InvalidRequest)
        assert bench.model.calls == [[-1], [-1]]
        assert [each.failed for each in bench.events if isinstance(each, BatchExecuted)] == [1]
        assert bench.batcher.idle

    scenario(main)


def test_one_whose_outputs_do_not_follow_its_rows_is_found_out_by_an_ordinary_call() -> None:
    async def main() -> None:
        bench, reply = quick_bench(), FakeReply()
        bench.function.run = lambda inputs: {"y": inputs["x"].sum(axis=0)}
        bench.batcher.steps.when_free(partial(supply, bench, 1.0, reply, 3))
        await turns()
        assert not bench.function.batchable

    scenario(main)


def test_what_may_not_be_called_twice_or_is_not_known_to_be_quick_is_an_ordinary_call() -> None:
    async def main() -> None:
        for make in (_without_plain_way, _unsteady, _slow, _too_large, _due_for_a_check):
            bench, done = quick_bench(), list[bool]()
            rows = make(bench)
            bench.batcher.steps.when_free(lambda b=bench, n=rows, d=done: d.append(supply(b, 1.0, FakeReply(), n)))  # type: ignore[misc]  # mypy infers no defaults
            await turns()
            assert done == [False], make

    scenario(main)


def _without_plain_way(bench: Bench) -> int:
    bench.function.plain = None
    return 1


def _unsteady(bench: Bench) -> int:
    bench.function.steady = False
    return 1


def _slow(bench: Bench) -> int:
    bench.batcher._executor.max_inline_s = QUICK[1] / 2
    return 1


def _too_large(bench: Bench) -> int:
    return bench.function.max_rows + 1


def _due_for_a_check(bench: Bench) -> int:
    bench.batcher.shadow._spent_s = 0.0
    return 1
