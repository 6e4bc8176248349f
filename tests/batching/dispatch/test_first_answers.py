"""What a probe could not see is seen in the first calls of callers, before anybody gets a wrong answer."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from app.batching.batch import run_together
from app.batching.batcher import Batcher
from app.batching.dispatch.first_answers import OF_A_KIND, REQUESTS, FirstAnswers
from app.batching.function import BatchFunction, Compared, PlainWay
from app.batching.request import PendingRequest
from app.batching.shapes.padding import ShapePadding
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.events import Event, ShadowChecked
from app.core.inference import Array
from app.core.reply import ANSWERED
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import KEY, FakeDevice, infer, rows_of, run_in_fake_time

Run = Callable[[Mapping[str, Array]], dict[str, Array]]


def double(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": 2 * inputs["x"]}


def zeros_see_all(inputs: Mapping[str, Array]) -> dict[str, Array]:
    x = inputs["x"]
    return {"y": np.where(x == 0, x.sum(0), x)}


class Served:
    def __init__(self, run: Run, plain: Run | None = None, **more: Any) -> None:
        self.stopped: list[str] = []
        self.told: list[Event] = []
        self.variant: Run | None = run  # in place of the plain model
        self.sizes: list[int] = []
        self.plain_calls = 0
        self.first = FirstAnswers()
        self.plain = plain or run
        self.function = BatchFunction(
            self._counted(),
            BatchSizes((1, 2, 4)),
            plain=PlainWay(self._plainly(self.plain), self._stop),
            first=self.first,
            **more,
        )
        clock = asyncio.get_running_loop().time
        self.batcher = Batcher(
            [FakeDevice(1.0)], WorkConserving(), BatcherOptions(1024, admission=False), self.told.append, clock
        )

    def _stop(self, what: str) -> None:
        """As a placement does."""
        self.stopped.append(what)
        if what == "variant":
            self.variant = None
        else:
            self.function.batchable = self.function.divisible = False

    def _counted(self) -> Run:
        def counted(inputs: Mapping[str, Array]) -> dict[str, Array]:
            self.sizes.append(len(inputs["x"]))
            return (self.variant or self.plain)(inputs)

        return counted

    def _plainly(self, run: Run) -> Run:
        def counted(inputs: Mapping[str, Array]) -> dict[str, Array]:
            self.plain_calls += 1
            return run(inputs)

        return counted

    def found(self) -> list[str]:
        """What was told of checks that found something."""
        results = [event.result for event in self.told if isinstance(event, ShadowChecked)]
        return [each for each in results if each in {"variant", "padding", "sharing"}]

    async def ask(self, *values: float, rows: int = 1) -> list[list[float]]:
        asked = [infer(self.batcher, KEY, self.function, rows_of(value, rows), rows) for value in values]
        return [answer.outputs["y"][:, 0].tolist() for answer in await asyncio.gather(*asked)]


def test_no_answer_is_wrong_though_the_rows_of_a_first_call_see_each_other() -> None:
    async def main() -> None:
        served = Served(zeros_see_all)
        assert await served.ask(1, 0, 3, 0, 2, 0) == [[1], [0], [3], [0], [2], [0]]
        assert set(served.stopped) == set(served.found()) == {"sharing"}
        assert not served.function.batchable
        served.sizes.clear()
        assert await served.ask(0, 5, 0) == [[0], [5], [0]]
        assert served.sizes == [1, 1, 1]

    run_in_fake_time(main())


def test_a_lone_request_is_not_answered_by_what_its_padding_changes() -> None:
    async def main() -> None:
        served = Served(lambda inputs: {"y": inputs["x"] + len(inputs["x"])})
        assert await served.ask(1, rows=3) == [[4, 4, 4]]
        assert served.stopped == ["sharing"]

    run_in_fake_time(main())


def test_a_variant_that_answers_otherwise_is_stopped_and_requests_share_calls_on() -> None:
    async def main() -> None:
        served = Served(lambda inputs: {"y": 3 * inputs["x"]}, plain=double)
        assert await served.ask(1, 2, 3) == [[2], [4], [6]]
        assert served.stopped == served.found() == ["variant"]
        served.sizes.clear()
        assert await served.ask(1, 2, 3) == [[2], [4], [6]]
        assert max(served.sizes) > 1

    run_in_fake_time(main())


def test_requests_are_answered_though_their_answers_differ_whatever_is_stopped() -> None:
    async def main() -> None:
        served = Served(lambda inputs: {"y": 3 * inputs["x"]}, plain=double)
        served.function.plain = PlainWay(double, served.stopped.append)  # which stops nothing
        assert await served.ask(1, 2, rows=3) == [[3, 3, 3], [6, 6, 6]]
        assert not served.function.batchable

    run_in_fake_time(main())


def test_an_inner_shape_that_was_padded_is_compared_too() -> None:
    def mean(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": inputs["x"].mean(1)}

    padding = ShapePadding({"x": ("n",)}, {"y": ()}, {"x": 0.0})
    function = BatchFunction(mean, BatchSizes((1, 2, 4)), padding=padding, plain=PlainWay(mean, lambda _: None))
    sent = [{"x": np.full((1, length), 4.0, np.float32)} for length in (3, 4)]
    requests = [PendingRequest(inputs, 1, ANSWERED, 0.0) for inputs in sent]
    outcomes = run_together(function, requests, mean)
    compared = FirstAnswers().compare(function, requests, outcomes)
    assert compared is not None
    assert compared.differing == "padding"


@pytest.mark.parametrize("together", [2, 4])
def test_only_the_first_requests_are_compared(together: int) -> None:
    async def main() -> None:
        served = Served(double)
        for number in range(3 * REQUESTS // together):
            values = [1.0 + number / 1000 + place / 10 for place in range(together)]
            assert np.allclose(await served.ask(*values), [[2 * value] for value in values])
        assert REQUESTS <= served.plain_calls <= REQUESTS + together  # one of them is a shadow check
        assert (served.stopped, served.first.left <= 0) == ([], True)

    run_in_fake_time(main())


def test_later_the_first_requests_of_each_kind_of_values_are_compared() -> None:
    async def main() -> None:
        served = Served(lambda inputs: {"y": np.where(inputs["x"] > 50, inputs["x"].sum(0), inputs["x"])})
        for _ in range(REQUESTS):
            await served.ask(1, 2, 3)
        assert served.first.left <= 0
        before = served.plain_calls
        await served.ask(1, 2, 3)
        assert served.plain_calls == before
        assert await served.ask(70, 2, 90, 3) == [[70], [2], [90], [3]]
        assert served.stopped == ["sharing"]

    run_in_fake_time(main())


def test_a_kind_of_values_is_compared_some_times() -> None:
    async def main() -> None:
        served = Served(double)
        served.first.left = 0
        for _ in range(3 * OF_A_KIND):
            await served.ask(100, 100, 100, 100)
        assert OF_A_KIND <= served.plain_calls <= 4 * OF_A_KIND + 1  # one of them is a shadow check

    run_in_fake_time(main())


def test_calls_with_kinds_that_are_too_many_to_be_kept_are_always_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.batching.dispatch.first_answers.MOST_KINDS", 3)
    first = FirstAnswers()
    first.record(Compared(REQUESTS, range(100)))
    assert len(first._seen) == 3

    async def main() -> None:
        served = Served(double)
        for _ in range(REQUESTS):
            await served.ask(1, 2, 100, 1000)
        before = served.plain_calls
        for _ in range(2 * OF_A_KIND):
            await served.ask(1, 2, 100, 1000)
        assert served.plain_calls >= before + 4 * 2 * OF_A_KIND

    run_in_fake_time(main())


def test_requests_are_not_submitted_as_one() -> None:
    async def main() -> None:
        assert not Served(double).function.coalescable

    run_in_fake_time(main())


def test_rounding_at_a_border_is_no_difference() -> None:
    """A value that lies at a border falls to either side by the order in which a larger call adds up."""

    def rounded(inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"].astype(np.float32)
        off = np.float32(1e-7 * (len(x) > 1))
        return {"y": np.where(x * (1 + off) > 1.0, 1.0, 0.0).astype(np.float32)}

    async def main() -> None:
        served = Served(rounded)
        for _ in range(4):
            await served.ask(1.0, 1.0, 1.0)
        assert served.stopped == []

    run_in_fake_time(main())


def test_a_request_that_fails_alone_says_nothing() -> None:
    async def main() -> None:
        def fail(_: Mapping[str, Array]) -> dict[str, Array]:
            raise ZeroDivisionError

        served = Served(double, plain=fail)
        assert await served.ask(1, 2, 3) == [[2], [4], [6]]
        assert served.stopped == []

    run_in_fake_time(main())
