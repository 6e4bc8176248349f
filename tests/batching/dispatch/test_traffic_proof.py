"""Requests of models whose rows see each other, and of others. The oracle is the definition of the model."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batch import BatchInFlight, Execution, execute
from app.batching.dispatch.spare_device import SpareDevice
from app.batching.dispatch.traffic_proof import IDLE_SHARE, MOST_BYTES_OF_ALL, MOST_CREDIT_S, SHARE, TrafficProofs
from app.batching.function import BatchFunction, PlainWay
from app.batching.proof.kept_rows import LEAST_ROWS, MOST_BYTES
from app.batching.proof.traffic_trial import LONGEST_S, TrafficFound, TrafficTrial
from app.batching.request import PendingRequest
from app.batching.waiting.lane import Lane
from app.core.batch_sizes import BatchSizes
from app.core.errors import InferenceFailed, InvalidRequest
from app.core.events import RowsTried
from app.core.inference import Array, string_array
from tests.support.fakes import KEY, FakeReply

T = TypeVar("T")
Run = Callable[[Mapping[str, Array]], dict[str, Array]]


class Desk:
    """A signature on trial, beside calls that the test makes up. Mixes are computed when `work` is called."""

    def __init__(self, run: Run, plain: Run | None = None, largest: int = 16, proven: int = 1) -> None:
        self.now = self.called_s = 0.0
        self.waits = False
        self.free = True
        self.mix_s = 1e-4
        self.events: list[Any] = []
        self.found: list[TrafficFound] = []
        self.stopped: list[str] = []
        self.answered: list[dict[str, Array]] = []
        self.trial = TrafficTrial(BatchSizes.powers_of_two(largest), self.found.append, proven=proven)
        self.function = self.new_function(run, plain, self.trial)
        self.proofs = TrafficProofs(
            SpareDevice(cast(Any, self), lambda: self.waits, lambda: self.now), self.events.append
        )
        self.lent: list[Callable[[], None]] = []

    def new_function(self, run: Run, plain: Run | None, trial: TrafficTrial) -> BatchFunction:
        function = BatchFunction(run, BatchSizes((1,)), batchable=False, trial=trial)
        function.plain = PlainWay(plain or run, self.stopped.append)
        return function

    def lends(self, function: BatchFunction) -> bool:
        return self.free

    def lend(self, work: Callable[[], T], done: Callable[[T], None], together: Collection[str] = ()) -> None:
        self.lent.append(lambda: done(work()))

    def ask(
        self, *requests: Mapping[str, Array], caller: str = "", seconds: float = 1e-3, function: Any = None
    ) -> None:
        """The requests are computed, each alone, and answered."""
        function = function or self.function
        pending = [PendingRequest(each, 1, FakeReply(), 0.0, caller=caller) for each in requests]
        batch = BatchInFlight(Lane(KEY, function), pending, "idle")
        execution = execute(function, pending, lambda: self.now)
        self.now += seconds
        self.called_s += seconds
        self.answered += [each for each in execution.outcomes if isinstance(each, dict)]
        self.proofs.observe(batch, execution._replace(ended_s=self.now))

    def work(self) -> None:
        """All mixes that begin are computed, one after the other."""
        while self.lent:
            self.now += self.mix_s
            self.lent.pop()()

    def ask_all(self, values: Sequence[float]) -> None:
        for value in values:
            self.ask({"x": column(value)})
            self.work()

    def results(self) -> list[str]:
        return [event.result for event in self.events if isinstance(event, RowsTried)]

    def spent_s(self) -> float:
        return sum([event.seconds for event in self.events if isinstance(event, RowsTried)])


def column(*values: float) -> Array:
    return np.array(values, np.float64).reshape(-1, 1)


def of_x(compute: Callable[[Array], Array]) -> Run:
    return lambda inputs: {"y": compute(inputs["x"])}


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(0))
    shares: Array = powers / powers.sum(0)
    return shares


MIXING: dict[str, Callable[[Array], Array]] = {
    "softmax over rows": softmax,
    "softmax over rows, scaled": lambda x: x * softmax(x),
    "least of the rows": lambda x: np.broadcast_to(x.min(0), x.shape).copy(),
    "distance from the greatest": lambda x: x.max(0) - x,
    "rank": lambda x: np.argsort(np.argsort(x, 0), 0) + np.rint(x).astype(np.int64) * 100,
    "running sum": lambda x: np.cumsum(x, 0),
    "number of rows": lambda x: x + len(x),
    "number of rows beyond 4": lambda x: x + (len(x) > 4),
    "neighbour": lambda x: x + np.roll(x, 1, 0) * (len(x) > 1),
    "the first row": lambda x: x + x[0],
    "padding": lambda x: x - (x[-1] == x[0]) * (len(x) > 1),
    "the greatest is large": lambda x: x + (x.max(0) > 50),
    "unique": lambda x: x + len(np.unique(x)),
    "normalised": lambda x: (x - x.mean(0)) / (x.std(0) + 1),
}


def jumping_rank(x: Array) -> Array:
    """Beside the rank a number that jumps where values move by their last digit: rounding may explain anything."""
    ranks: Array = np.argsort(np.argsort(x, 0), 0) + np.trunc(x).astype(np.int64) * 100
    return ranks


INDEPENDENT: dict[str, Callable[[Array], Array]] = {
    "double": lambda x: 2 * x,
    "sign": lambda x: np.sign(x).astype(np.int64) + x.astype(np.int64),
    "text": lambda x: string_array([b"%d" % value for value in x[:, 0]]),
    "square": lambda x: x * x + x,
}

VALUES = st.lists(st.integers(-100, 100).map(float), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*sorted(MIXING), "jumping rank"]),
    st.lists(VALUES, min_size=8, max_size=90),
    st.sampled_from([2, 4, 8, 16, 12]),
)
def test_a_model_whose_rows_see_each_other_is_never_proven_beyond_what_agrees(
    name: str, requests: list[list[float]], largest: int
) -> None:
    desk = Desk(of_x(MIXING.get(name, jumping_rank)), largest=largest)
    mixes_beyond = 4 if name == "number of rows beyond 4" else 1
    for number, values in enumerate(requests):
        desk.ask({"x": column(*values)})
        desk.work()
        if any(found.rows > mixes_beyond for found in desk.found):
            assert name == "the greatest is large"
            assert max(map(max, requests[: number + 1])) <= 50, "a value showed it"
            return


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(INDEPENDENT)),
    st.lists(VALUES, min_size=100, max_size=120, unique_by=lambda values: values[0]),
    st.sampled_from([2, 4, 8, 16, 12]),
)
def test_an_independent_model_is_proven_by_few_requests(name: str, requests: list[list[float]], largest: int) -> None:
    desk = Desk(of_x(INDEPENDENT[name]), largest=largest)
    for values in requests:
        desk.ask({"x": column(*values)})
        desk.work()
    assert desk.found[-1] == TrafficFound(largest)
    assert {found.rows for found in desk.found} == {largest, min(largest, 8)}
    assert set(desk.results()) == {"agrees"}
    assert desk.trial.ended
    assert desk.function.trial is None


@pytest.mark.parametrize("name", MIXING)
def test_a_model_whose_rows_see_each_other_is_disproved_by_some_requests(name: str) -> None:
    desk = Desk(of_x(MIXING[name]))
    desk.ask_all([float(value) for high in range(40) for value in (high - 40, 79 - high)])
    assert desk.found == [TrafficFound(1, desk.found[0].reason, disproved=True)]
    assert "depends on the other rows" in desk.found[0].reason
    assert desk.trial.ended


def test_answers_come_from_calls_of_their_own_while_rows_are_on_trial() -> None:
    desk = Desk(of_x(softmax))
    desk.ask_all([float(value) for value in range(60)])
    assert desk.results()
    assert [answer["y"].tolist() for answer in desk.answered] == [[[1.0]]] * 60


def test_rows_of_one_request_that_see_each_other_disprove_it() -> None:
    desk = Desk(of_x(lambda x: x - x.mean(0) * (len(x) % 2 == 0)), largest=2)
    for value in range(30):
        desk.ask({"x": column(value, value + 1000.5)})
        desk.work()
    assert desk.found[0].disproved


def test_the_largest_number_of_rows_that_the_model_takes_is_found() -> None:
    def at_most(rows: int) -> Run:
        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            if len(inputs["x"]) > rows:
                raise InvalidRequest(f"at most {rows} rows")
            return {"y": 2 * inputs["x"]}

        return run

    for rows, expected in ((1, 1), (3, 2), (24, 16)):
        desk = Desk(at_most(rows), largest=64)
        desk.ask_all([float(value) for value in range(60)])
        assert desk.found[-1] == TrafficFound(expected, f"calls of {2 * expected} rows: at most {rows} rows")


def test_outputs_that_do_not_follow_the_rows_disprove_it() -> None:
    desk = Desk(of_x(lambda x: x[:1] if len(x) > 1 else x))
    desk.ask_all([float(value) for value in range(60)])
    assert desk.found[0].disproved
    assert "do not follow the rows" in desk.found[0].reason


def test_a_model_whose_equal_calls_differ_is_never_proven() -> None:
    random = np.random.default_rng(1)
    desk = Desk(of_x(lambda x: x + random.random(x.shape)))
    desk.ask_all([float(value) for value in range(60)])
    assert desk.found == [TrafficFound(1, "equal calls of the model give different answers", disproved=True)]


def test_what_a_shadow_check_found_to_be_random_is_not_tried() -> None:
    desk = Desk(of_x(lambda x: 2 * x))
    desk.function.plain = None
    desk.ask_all([1.0])
    assert desk.found[0].disproved
    assert desk.results() == []


def rounded_in_company(x: Array) -> Array:
    """Computed otherwise in calls of several rows, as another kernel does."""
    rounded: Array = x * (1 + 1e-13 * (len(x) > 1))
    return rounded


def test_rounding_is_no_difference_and_a_row_of_which_it_decides_does_not_count() -> None:
    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = rounded_in_company(inputs["x"])
        return {"y": x, "above": x > 7.0}

    desk = Desk(run)
    desk.ask_all([float(value) for value in range(60)])
    assert desk.found[-1] == TrafficFound(16)
    assert set(desk.results()) == {"agrees", "rounded"}


def test_where_rounding_may_explain_all_differences_nothing_is_proven() -> None:
    desk = Desk(of_x(jumping_rank))
    desk.ask_all([float(value) for value in range(1, 400)])
    assert "rounded" in desk.results()
    assert [found.rows for found in desk.found] == [1]


def test_a_variant_that_answers_otherwise_is_stopped_and_rows_are_tried_anew() -> None:
    ways = {"variant": of_x(lambda x: 2 * x + (len(x) == 4)), "plain": of_x(lambda x: 2 * x)}
    way = ["variant"]

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return ways[way[0]](inputs)

    desk = Desk(run, ways["plain"])
    original = desk.stopped.append

    def stop(what: str) -> None:
        original(what)
        way[0] = "plain"

    assert desk.function.plain is not None
    desk.function.plain = desk.function.plain._replace(stop=stop)
    desk.ask_all([float(value) for value in range(60)])
    assert desk.stopped == ["variant"]
    assert desk.found[-1] == TrafficFound(16)


def test_a_variant_that_goes_on_to_answer_otherwise_ends_the_trial_and_proves_nothing() -> None:
    desk = Desk(of_x(lambda x: 2 * x + (len(x) == 2)), of_x(lambda x: 2 * x))
    desk.ask_all([float(value) for value in range(60)])
    assert desk.stopped == ["variant"]
    assert desk.found == [TrafficFound(1, "its execution answers otherwise than the plain model")]


# --- when ---


def test_mixes_take_no_more_than_their_share() -> None:
    desk = Desk(of_x(lambda x: 2 * x), largest=64)
    desk.mix_s = 0.01
    desk.waits = True
    calls_s = 0.0
    for value in range(3000):
        desk.ask({"x": column(value)}, seconds=5e-3)
        calls_s += 5e-3
        desk.work()
        assert desk.spent_s() <= MOST_CREDIT_S + SHARE * calls_s + IDLE_SHARE * (desk.now - calls_s) + desk.mix_s + 1e-9
    assert desk.found[-1] == TrafficFound(64)


def test_without_credit_no_mix_begins_until_calls_or_idle_time_bring_it() -> None:
    desk = Desk(of_x(lambda x: 2 * x))
    desk.mix_s = MOST_CREDIT_S + 1.0
    desk.ask_all([float(value) for value in range(LEAST_ROWS)])
    assert desk.results() == ["agrees"], "one mix is always allowed"
    desk.now += 0.9 / IDLE_SHARE
    desk.ask_all([100.0])
    assert len(desk.results()) == 1
    desk.now += 0.2 / IDLE_SHARE
    desk.ask_all([101.0])
    assert len(desk.results()) == 2


def test_calls_of_other_signatures_bring_credit_and_their_time_is_not_idle() -> None:
    desk = Desk(of_x(lambda x: 2 * x))
    desk.mix_s = MOST_CREDIT_S + 1.0
    desk.ask_all([float(value) for value in range(LEAST_ROWS)])
    called_s = 2.0 / (SHARE + IDLE_SHARE)
    desk.now += called_s
    desk.called_s += called_s
    desk.ask_all([100.0])
    assert len(desk.results()) == 1, "as idle time it would have been enough"
    desk.now += 1.1 / SHARE
    desk.called_s += 1.1 / SHARE
    desk.ask_all([101.0])
    assert len(desk.results()) == 2


def test_while_requests_wait_mixes_are_rare_and_none_follows_at_once() -> None:
    desk = Desk(of_x(lambda x: 2 * x))
    desk.waits = True
    desk.ask_all([float(value) for value in range(LEAST_ROWS)])
    assert desk.results() == []
    desk.now += 0.25
    desk.ask_all([100.0, 101.0])
    assert desk.results() == ["agrees"]
    desk.waits = False
    desk.ask_all([102.0])
    assert len(desk.results()) > 10, "one after the other"


def test_one_mix_at_a_time_and_only_with_a_free_device_and_the_model_stays_meanwhile() -> None:
    desk = Desk(of_x(lambda x: 2 * x))
    desk.free = False
    for value in range(LEAST_ROWS):
        desk.ask({"x": column(value)})
    assert not desk.lent
    desk.free = True
    desk.ask({"x": column(100.0)}, {"x": column(101.0)})
    desk.ask({"x": column(102.0)})
    assert len(desk.lent) == 1
    assert desk.function.requests_under_way == 1
    desk.waits = True
    desk.work()
    assert desk.function.requests_under_way == 0


def test_a_mix_that_would_take_too_long_is_left_out_and_what_is_proven_stays() -> None:
    desk = Desk(of_x(lambda x: 2 * x), largest=64)
    for value in range(400):
        desk.mix_s = LONGEST_S / 4
        desk.now += 60.0
        desk.ask({"x": column(value)})
        if desk.lent and desk.trial.tried_rows >= 4:
            desk.mix_s = LONGEST_S * 0.9
        desk.work()
    assert desk.found == [TrafficFound(8, desk.found[0].reason)]
    assert "a call of 16 rows would take too long to try: about 2.7 s" in desk.found[0].reason


def test_a_model_of_slow_calls_is_not_tried() -> None:
    desk = Desk(of_x(lambda x: 2 * x))
    for value in range(LEAST_ROWS):
        desk.ask({"x": column(value)}, seconds=LONGEST_S)
    assert not desk.lent
    assert desk.found == [TrafficFound(1, "a call of 2 rows would take too long to try: about 3.0 s")]


# --- what is kept ---


def test_what_is_kept_of_all_signatures_is_bounded() -> None:
    desk = Desk(of_x(lambda x: x.astype(np.float32).sum(1)))
    desk.free = False
    trials = []
    for number in range(8):
        trial = TrafficTrial(BatchSizes.powers_of_two(8), desk.found.append)
        function = desk.new_function(of_x(lambda x: x[:, :1] + 1), None, trial)
        trials.append(trial)
        for value in range(20):
            x = np.zeros((1, 1 << 18))
            x[0, 0] = value + 100 * number
            desk.ask({"x": x}, function=function)
            assert sum(each.bytes for each in trials) <= MOST_BYTES_OF_ALL
    assert trials[0].bytes > MOST_BYTES / 2


def test_arrays_of_requests_may_be_used_again() -> None:
    desk = Desk(of_x(lambda x: x + softmax(x)))
    shared = column(0.0)
    for value in range(60):
        shared[0, 0] = value
        desk.ask({"x": shared})
        desk.work()
    assert desk.found[0].disproved


@pytest.mark.parametrize("error", [InvalidRequest("no"), InferenceFailed("no"), ZeroDivisionError()])
def test_requests_that_fail_are_not_kept_and_a_batch_that_was_rejected_neither(error: Exception) -> None:
    def fail(inputs: Mapping[str, Array]) -> dict[str, Array]:
        raise error

    desk = Desk(fail)
    desk.ask_all([float(value) for value in range(30)])
    desk.proofs.observe(
        BatchInFlight(Lane(KEY, desk.function), [PendingRequest({"x": column(1.0)}, 1, FakeReply(), 0.0)], "idle"),
        Execution([], 0.0, 1.0, 0, 0.0, InvalidRequest("no")),
    )
    assert desk.trial.bytes == 0
    assert desk.results() == []
