from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.time_budget import NoTimeLeft, TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.padding_probe import PaddingOptions, probe_padding
from app.loading.rows.row_probe import probe_rows
from app.loading.warm_up import measure_calls

FLOAT32 = np.dtype(np.float32)


class SlowModel:
    """Doubles x, and takes a second for each row, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[int] = []
        spec = TensorSpec("x", FLOAT32, (None, None))
        self.signatures: Mapping[str, ModelSignature] = {"f": ModelSignature("f", {"x": spec}, {"y": spec})}

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        rows = len(inputs["x"])
        self.calls.append(rows)
        self.now += rows
        return {"y": inputs["x"] * 2}

    def clock(self) -> float:
        return self.now

    def close(self) -> None:
        raise AssertionError("who lends it does not own it")


def test_a_call_begins_only_if_it_is_expected_to_end_in_time() -> None:
    slow = SlowModel()
    model = BudgetedModel(slow, TimeBudget(11.0, slow.clock), slow.clock)
    for rows in (1, 4):
        model.run("f", {"x": np.ones((rows, 3), np.float32)}, ())
    with pytest.raises(NoTimeLeft, match="would take 8 s"):
        model.run("f", {"x": np.ones((8, 3), np.float32)}, ())
    model.run("f", {"x": np.ones((4, 3), np.float32)}, ())
    assert slow.calls == [1, 1, 4, 4]  # a long first call is made twice


def test_kernels_chosen_in_the_first_call_do_not_count_for_larger_calls() -> None:
    """On a GPU 64 rows were foreseen at 17.7 s, and every request ran alone."""

    class ChoosesKernels(SlowModel):
        def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            self.now += 0.005 if self.calls else 0.277
            self.calls.append(len(inputs["x"]))
            return {"y": inputs["x"] * 2}

    gpu = ChoosesKernels()
    model = BudgetedModel(gpu, TimeBudget(10.0, gpu.clock), gpu.clock)
    for rows in (1, 64):
        model.run("f", {"x": np.ones((rows, 3), np.float32)}, ())
    assert gpu.calls == [1, 1, 64]


def test_a_first_call_is_made_once_if_twice_is_too_long() -> None:
    slow = SlowModel()
    model = BudgetedModel(slow, TimeBudget(1.5, slow.clock), slow.clock)
    model.run("f", {"x": np.ones((1, 3), np.float32)}, ())
    assert slow.calls == [1]


def test_what_is_measured_does_not_count_the_wait_of_a_busy_server() -> None:
    slow = SlowModel()
    spec = TensorSpec("x", FLOAT32, (None, 3))
    slow.signatures = {"f": ModelSignature("f", {"x": spec}, {"y": spec})}

    def opens_late() -> bool:
        slow.now += 0.1
        return True

    model = BudgetedModel(slow, TimeBudget(100.0, slow.clock, opens_late), slow.clock)
    assert measure_calls(model, model.signatures, [1], model.work_clock) == {"f": {1: pytest.approx(1.0)}}


def test_rows_without_columns_are_called_again() -> None:
    slow = SlowModel()
    model = BudgetedModel(slow, TimeBudget(10.0, slow.clock), slow.clock)
    for rows in (1, 2, 4):
        model.run("f", {"x": np.ones((rows, 0), np.float32)}, ())
    assert slow.calls == [1, 1, 2, 4]


def test_the_first_call_of_a_signature_always_begins() -> None:
    slow = SlowModel()
    model = BudgetedModel(slow, TimeBudget(0.0, slow.clock), slow.clock)
    model.run("f", {"x": np.ones((1, 3), np.float32)}, ())
    with pytest.raises(NoTimeLeft):
        model.run("f", {"x": np.ones((1, 3), np.float32)}, ())


def test_another_budget_counts_for_all_replicas_and_what_calls_took_stays_known() -> None:
    class Two(SlowModel):
        @property
        def replicas(self) -> Sequence[SlowModel]:
            return first, second

    first, second = SlowModel(), SlowModel()
    model = BudgetedModel(Two(), TimeBudget(100.0))
    assert len(model.replicas) == 2
    model.run("f", {"x": np.ones((1, 3), np.float32)}, ())
    model.use(TimeBudget(0.0))
    for replica in model.replicas[:1]:
        with pytest.raises(NoTimeLeft):
            replica.run("f", {"x": np.ones((1, 3), np.float32)}, ())
    assert {replica.budget.seconds for replica in model.replicas} == {0.0}


def test_a_budget_that_counts_in_a_block_gives_way_to_the_one_before() -> None:
    model, row = BudgetedModel(SlowModel(), TimeBudget(100.0)), {"x": np.ones((1, 3), np.float32)}
    model.run("f", row, ())
    with pytest.raises(NoTimeLeft), model.within(TimeBudget(0.0)):
        model.run("f", row, ())
    model.run("f", row, ())


def test_the_row_probe_knows_what_calls_before_it_took() -> None:
    """It began a call of any length, as it had timed none by itself."""
    slow = SlowModel()
    model = BudgetedModel(slow, TimeBudget(100.0, slow.clock), slow.clock)
    signature = slow.signatures["f"]
    model.run("f", {"x": np.ones((1, 9), np.float32)}, ())
    with model.within(TimeBudget(0.5, slow.clock)):
        found = probe_rows(model, signature, BatchSizes((1, 2)))
    assert slow.calls == [1, 1]
    assert (found.proven, found.dependent) == (frozenset(), {})


def test_the_padding_probe_of_a_slow_model_ends_with_the_budget() -> None:
    """382 calls took 377 s where a row takes a second."""
    slow = SlowModel()
    model = BudgetedModel(slow, TimeBudget(30.0, slow.clock), slow.clock)
    found = probe_padding(model, BatchSizes((1, 2, 4, 64)), PaddingOptions())["f"]
    assert slow.now <= 30.0
    assert found.padding is None
    assert "whether padding changes answers was not found out: a call" in found.reason
