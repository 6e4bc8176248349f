import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import ml_dtypes
import numpy as np
import pytest

from app.core.errors import InferenceFailed, InvalidRequest, ModelUnusable, OutOfMemory
from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.optional_inputs import with_declared_masks
from app.core.time_budget import NoTimeLeft, TimeBudget
from app.loading.warm_up import measure_calls, tune, warm_up
from app.runtime import LoadedModel, ProgressReport, VariantChoice

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)


def signature(*inputs: TensorSpec, name: str = "serving_default") -> ModelSignature:
    return ModelSignature(name, {spec.name: spec for spec in inputs}, {"y": TensorSpec("y", FLOAT32, (None,))})


class RecordingModel:
    """A LoadedModel that notes its calls and raises the error set for a signature."""

    def __init__(self, *signatures: ModelSignature, errors: Mapping[str, Exception] | None = None) -> None:
        self.signatures = {signature.name: signature for signature in signatures}
        self.errors = errors or {}
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        assert outputs == ()
        self.calls.append((signature, next(iter(inputs.values())).shape))
        if signature in self.errors:
            raise self.errors[signature]
        return {}

    def close(self) -> None:
        raise AssertionError("warm-up does not own the model")


BATCHED = signature(TensorSpec("x", FLOAT32, (None, 2)))
SCALAR = signature(TensorSpec("a", FLOAT32, ()), name="scalar")
DECODER = signature(TensorSpec("png", STRING, (None,)), name="decoder")


def test_every_size_of_every_signature_runs_and_one_of_those_not_batchable() -> None:
    model = RecordingModel(BATCHED, SCALAR)
    assert warm_up(model, [1, 4], lambda *_: None) == [1, 4]
    # The smallest runs twice: its first call says little about what larger ones take.
    assert model.calls == [("serving_default", (size, 2)) for size in (1, 1, 4)] + [("scalar", ())]


@pytest.mark.parametrize("error", [OutOfMemory("too large"), NoTimeLeft("it would take 9 s")])
def test_a_size_that_cannot_be_called_is_dropped_with_all_larger_ones(error: Exception) -> None:
    class Small(RecordingModel):
        def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            if signature == "other" and len(inputs["x"]) > 2:
                raise error
            return super().run(signature, inputs, outputs)

    model = Small(BATCHED, signature(TensorSpec("x", FLOAT32, (None, 2)), name="other"))
    assert warm_up(model, [1, 2, 4, 8], lambda *_: None) == [1, 2]
    with pytest.raises(type(error)):
        warm_up(model, [4, 8], lambda *_: None, larger=True)


def test_a_version_is_served_though_the_search_for_a_row_that_it_accepts_took_all_the_time() -> None:
    class Slow(RecordingModel):
        def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            raise NoTimeLeft("it would take 9 s")

    assert warm_up(Slow(BATCHED), [1, 2, 4, 8], lambda *_: None) == [1]


def test_a_version_for_which_the_device_has_no_memory_is_not_served() -> None:
    class Large(RecordingModel):
        def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            raise OutOfMemory("too large")

    with pytest.raises(OutOfMemory):
        warm_up(Large(BATCHED), [1, 2], lambda *_: None)


def test_a_signature_that_writes_state_or_runs_alone_is_not_measured_and_one_that_writes_never_called() -> None:
    writes = replace(BATCHED, name="writes", writes=("AssignVariableOp",), alone={"y": "it writes"})
    alone = replace(BATCHED, name="alone", alone={"y": "a row's answer depends on the other rows"})
    model = RecordingModel(writes, alone)
    warm_up(model, [1, 4], lambda *_: None)
    assert model.calls == [("alone", (1, 2)), ("alone", (1, 2)), ("alone", (4, 2))]
    assert measure_calls(model, model.signatures, [1, 4]) == {}
    assert len(model.calls) == 3


def test_progress_counts_to_the_total() -> None:
    reports: list[tuple[int, int, str]] = []
    warm_up(RecordingModel(BATCHED, SCALAR), [1, 4], lambda *report: reports.append(report))
    assert reports == [
        (1, 3, "signature 'serving_default' with 1 row"),
        (2, 3, "signature 'serving_default' with 4 rows"),
        (3, 3, "signature 'scalar' with 1 row"),
    ]


def test_a_signature_that_rejects_the_examples_is_told_and_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    model = RecordingModel(DECODER, BATCHED, errors={"decoder": InvalidRequest("no image")})
    reports: list[tuple[int, int, str]] = []
    warm_up(model, [2], lambda *report: reports.append(report))
    assert [done for done, _, _ in reports] == [1, 2]
    assert ("serving_default", (2, 2)) in model.calls
    assert "'decoder'" in caplog.text
    assert "no image" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.INFO}


@pytest.mark.parametrize("error", [ModelUnusable("a table is empty"), OutOfMemory("too large")])
def test_a_model_that_no_call_can_succeed_with_fails_the_load(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        warm_up(RecordingModel(BATCHED, errors={"serving_default": error}), [1], lambda *_: None)


def test_a_signature_that_cannot_work_beside_one_that_does_is_told(caplog: pytest.LogCaptureFixture) -> None:
    model = RecordingModel(BATCHED, SCALAR, errors={"scalar": ModelUnusable("a table is empty")})
    assert warm_up(model, [1, 4], lambda *_: None) == [1, 4]
    assert "'scalar' is served, but not warmed up" in caplog.text


def test_a_failure_on_sample_inputs_leaves_the_signature_cold_and_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = RecordingModel(BATCHED, errors={"serving_default": InferenceFailed("broken")})
    assert warm_up(model, [1, 4], lambda *_: None) == [1, 4]
    assert "'serving_default' is served, but not warmed up" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    caplog.clear()
    assert warm_up(model, [8], lambda *_: None, larger=True) == [8]
    assert not caplog.records


class AtMostTwoRows(RecordingModel):
    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        if len(inputs["x"]) > 2:
            raise InferenceFailed("too many rows")
        return super().run(signature, inputs, outputs)


def test_a_failure_at_a_larger_size_costs_that_size() -> None:
    model = AtMostTwoRows(BATCHED)
    assert warm_up(model, [1, 2, 4, 8], lambda *_: None) == [1, 2]
    with pytest.raises(InferenceFailed, match="too many rows"):
        warm_up(model, [8], lambda *_: None, larger=True)


class Pooling(RecordingModel):
    """Fails on images smaller than its windows, as oneDNN does."""

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        super().run(signature, inputs, outputs)
        if min(inputs["image"].shape[1:3]) < 4:
            raise InferenceFailed("a window larger than the image")
        return {}


def test_open_sizes_grow_until_a_call_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    model = Pooling(signature(TensorSpec("image", FLOAT32, (None, None, None, 3))))
    assert warm_up(model, [1, 4], lambda *_: None) == [1, 4]
    sizes = [(rows, size, size, 3) for rows, size in ((1, 1), (1, 2), (1, 8), (1, 8), (4, 1), (4, 2), (4, 8))]
    assert [shape for _, shape in model.calls] == sizes
    assert not caplog.records


def test_the_memory_of_made_up_sizes_is_bounded() -> None:
    wide = signature(TensorSpec("x", FLOAT32, (None, None, None, None, None, 2)))
    model = RecordingModel(wide, errors={"serving_default": InvalidRequest("never")})
    assert warm_up(model, [8], lambda *_: None) == [8]
    assert max(shape[1] for _, shape in model.calls) == 32


class TunableModel(RecordingModel):
    def tune(self, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget) -> Sequence[VariantChoice]:
        report(1, 1, "trying")
        return [VariantChoice("serving_default", size, "frozen", 1.5) for size in sizes]


def test_a_model_with_variants_is_tuned_and_another_is_left_alone() -> None:
    reports: list[tuple[int, int, str]] = []

    def choices(model: LoadedModel) -> Sequence[VariantChoice]:
        return tune(model, [1, 4], lambda *report: reports.append(report), TimeBudget(9.0))

    assert [(choice.batch_size, choice.variant) for choice in choices(TunableModel(BATCHED))] == [
        (1, "frozen"),
        (4, "frozen"),
    ]
    assert reports == [(1, 1, "trying")]
    assert not choices(RecordingModel(BATCHED))
    assert len(reports) == 1


def ticking(seconds: float) -> Callable[[], float]:
    """Each look at the clock is so many seconds after the one before."""
    return (seconds * tick for tick in count()).__next__


def test_warm_calls_are_measured_at_each_size() -> None:
    model = RecordingModel(BATCHED, SCALAR)
    assert measure_calls(model, model.signatures, [1, 4], ticking(0.125)) == {"serving_default": {1: 0.125, 4: 0.125}}
    assert {shape for _, shape in model.calls} == {(1, 2), (4, 2)}


def test_measuring_ends_in_time() -> None:
    model = RecordingModel(BATCHED)
    assert measure_calls(model, model.signatures, [1, 4, 8], ticking(0.5)) == {"serving_default": {1: 0.5}}


def test_what_depends_on_the_callers_shapes_or_rejects_the_examples_is_not_measured() -> None:
    free = signature(TensorSpec("x", FLOAT32, (None, None)), name="free")
    model = RecordingModel(free, DECODER, errors={"decoder": InvalidRequest("no image")})
    assert measure_calls(model, model.signatures, [1, 4], ticking(0.1)) == {}


def test_masks_that_callers_may_leave_out_are_true_ones() -> None:
    class Lengths(RecordingModel):
        def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            lengths.append(inputs["n"].tolist())
            return super().run(signature, inputs, outputs)

    lengths: list[list[int]] = []
    seen = signature(TensorSpec("x", FLOAT32, (None, None)), TensorSpec("n", np.dtype(np.int32), (None,)))
    model = Lengths(seen)
    warm_up(model, [2], lambda *_: None, with_declared_masks(model.signatures, {"n": "x"}))
    assert lengths == [[1, 1]]


class SmallModel(RecordingModel):
    """Rejects calls of more rows than `most`."""

    def __init__(self, most: int, *signatures: ModelSignature) -> None:
        super().__init__(*signatures)
        self.most = most

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        super().run(signature, inputs, outputs)
        if signature == BATCHED.name and len(inputs["x"]) > self.most:
            raise InvalidRequest(f"at most {self.most} rows")
        return {}


@pytest.mark.parametrize("most", [2, 3, 7, 15, 16, 24, 48])
@pytest.mark.parametrize("larger", [False, True])
def test_the_most_rows_that_a_model_takes_are_found_by_halving(most: int, larger: bool) -> None:
    sizes, other = [1, 2, 4, 8, 16, 32, 64], signature(TensorSpec("x", FLOAT32, (None, 2)), name="other")
    model, limits = SmallModel(most, BATCHED, other), dict[str, int]()
    left = list[int]()
    for part in [[rows] for rows in sizes] if larger else [sizes]:
        left += warm_up(model, part, lambda *_: None, larger=larger, limits=limits)
    assert left == sizes  # the other signature takes them
    assert limits == {BATCHED.name: most}
    rows = [shape[0] for name, shape in model.calls if name == BATCHED.name]
    assert sum(each > most for each in rows) <= 7
    assert [shape for name, shape in model.calls if name == "other"][-1] == (64, 2)


@pytest.mark.parametrize("most", [0, 1])
def test_a_model_that_rejects_the_examples_or_two_of_them_has_no_limit(most: int) -> None:
    model, limits = SmallModel(most, BATCHED), dict[str, int]()
    assert warm_up(model, [1, 2, 4], lambda *_: None, limits=limits) == ([1] if most else [1, 2, 4])
    assert limits == {}


def test_inputs_that_are_no_rows_are_warmed_up_once_beside_rows() -> None:
    known = GraphRows({"y": OutputRows("proven")}, frozenset({"x"}), frozenset({"a"}))
    beside = replace(signature(TensorSpec("x", FLOAT32, (None, 2)), TensorSpec("a", FLOAT32, ())), graph_rows=known)
    model = RecordingModel(beside)
    warm_up(model, [1, 4], lambda *_: None)
    assert [shape for _, shape in model.calls] == [(1, 2), (1, 2), (4, 2)]
