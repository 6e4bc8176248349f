"""What becomes of a padding in later rounds of the background work. The oracle is what padding does to the model."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.improvement import Improvement
from app.loading.padding_probe import ProbedPadding
from app.loading.rows.row_independence import RowIndependence
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice
from tests.support.waiting import HANG_S

SIZES = BatchSizes.powers_of_two(8)


def total(x: Array) -> Array:
    sums: Array = x.sum(1)
    return sums


def mean(x: Array) -> Array:
    means: Array = x.mean(1)
    return means


class OneRow:
    """A model of one row of numbers; `answer` may be exchanged."""

    def __init__(self) -> None:
        x, y = TensorSpec("x", np.dtype(np.float32), (None, None)), TensorSpec("y", np.dtype(np.float32), (None,))
        self.signatures: Mapping[str, ModelSignature] = {"f": ModelSignature("f", {"x": x}, {"y": y})}
        self.answer: Callable[[Array], Array] = total

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        return {"y": self.answer(inputs["x"])}

    def close(self) -> None: ...


class Rounds:
    """The background work for one version. `probe` is the step that looks for paddings."""

    def __init__(self) -> None:
        self.loaded = OneRow()
        self.rows = RowIndependence("m", {"*": "assume"})
        self.rows.by_graph(self.loaded.signatures)
        self.improvement: Any = None

    def begin(self) -> None:
        batcher = Batcher([FakeDevice(0.0)], WorkConserving(), BatcherOptions(100))
        model = Model(RequestPlacement("m", 1, self.loaded, SIZES), batcher)
        self.improvement = Improvement(
            model,
            self.loaded,
            BudgetedModel(self.loaded, TimeBudget(HANG_S)),
            sizes=SIZES,
            rows=self.rows,
            settings=Settings(),
            place=lambda **_: RequestPlacement("m", 1, self.loaded, SIZES),
            tell=lambda _: None,
            on_loop=lambda work: work(),
            memory_trial=lambda *_: pytest.fail("its calls are small"),
        )

    def probe(self, seconds: float = HANG_S) -> Mapping[str, ProbedPadding]:
        budget = TimeBudget(seconds)
        self.improvement._calls.use(budget)
        self.improvement._probe_padding(budget)
        found: Mapping[str, ProbedPadding] = self.improvement._paddings
        return found


def in_rounds(scenario: Callable[[Rounds], None]) -> None:
    async def main() -> None:
        rounds = Rounds()
        rounds.begin()
        scenario(rounds)

    asyncio.run(main())


def test_a_padding_that_changed_answers_of_requests_never_comes_back() -> None:
    def scenario(rounds: Rounds) -> None:
        padding = rounds.probe()["f"].padding
        assert padding is not None
        padding.enabled = False  # as a shadow check, or a call whose outputs did not fit, does
        for _ in range(3):
            found = rounds.probe()["f"]
            assert found.padding is None
            assert str(found) == "only equal shapes share a batch: it changed the answers of requests"

    in_rounds(scenario)


def test_a_padding_that_a_later_round_disproves_is_dropped() -> None:
    def scenario(rounds: Rounds) -> None:
        assert rounds.probe()["f"].padding is not None
        rounds.loaded.answer = mean
        assert "padding changes the model's answers" in str(rounds.probe()["f"])

    in_rounds(scenario)


def test_a_padding_stays_where_a_later_round_has_no_time() -> None:
    def scenario(rounds: Rounds) -> None:
        first = rounds.probe()["f"]
        assert rounds.probe(seconds=0.0)["f"] is first
        assert first.padding is not None

    in_rounds(scenario)


def test_a_signature_whose_requests_run_alone_by_now_has_no_padding() -> None:
    def scenario(rounds: Rounds) -> None:
        padding = rounds.probe()["f"].padding
        assert padding is not None
        rounds.rows = RowIndependence("m", {"*": "deny"})
        rounds.rows.by_graph(rounds.loaded.signatures)
        rounds.improvement._rows = rounds.rows
        assert rounds.probe() == {}
        padding.enabled = False
        assert rounds.probe() == {}

    in_rounds(scenario)
