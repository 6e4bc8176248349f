import asyncio
import gc
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.dispatch.first_answers import FirstAnswers
from app.batching.state import BatcherOptions
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.errors import InferenceFailed, InvalidRequest, ModelUnusable, OutOfMemory
from app.core.events import Event, ModelImproving, ModelPlaced, RowsProbed, VariantsChosen
from app.core.inference import STRING, Array, InferenceRequest, ModelSignature, TensorSpec
from app.core.time_budget import TimeBudget
from app.loading.loader import Loader
from app.loading.settings_of_model import check_pad_values, of_model, warn_of_unknown
from app.model import Model
from app.runtime import ProgressReport, ShapeTrial, VariantChoice
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, FakeRuntime, rows_of
from tests.support.waiting import HANG_S


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine computes the first calls late, but it computes them."""
    monkeypatch.setattr("app.loading.loader._FIRST_S", HANG_S)
    monkeypatch.setattr("app.loading.loader._ROW_PROBE_S", HANG_S)


class CountedModel(FakeLoadedModel):
    """Counts how often it is closed, and notes the time budgets; `fails` names the step that raises."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.fails = fails
        self.closes = 0
        self.budgets: list[TimeBudget] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        self._step("run")
        return super().run(signature, inputs, outputs)

    def tune(self, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget) -> Sequence[VariantChoice]:
        self.budgets.append(budget)
        self._step("tune")
        return [VariantChoice("serving_default", size, "frozen", 1.5) for size in sizes]

    def compile_shapes(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        raise AssertionError("no signature has free inner shapes")

    def close(self) -> None:
        super().close()
        self.closes += 1

    def _step(self, name: str) -> None:
        if name == self.fails:
            raise ModelUnusable(f"{name} failed")


class OneModelRuntime(FakeRuntime):
    def __init__(self, model: FakeLoadedModel) -> None:
        super().__init__()
        self.model = model

    def load(self, path: Path) -> FakeLoadedModel:
        return self.model


def with_loader(
    loaded: FakeLoadedModel, scenario: Callable[[Loader, list[Event]], None], folder: Path, **more: Any
) -> None:
    async def main() -> None:
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(100))
        told: list[Event] = []
        settings = Settings(models=folder, **{"load_budget_s": HANG_S, "ready_when": "tuned", **more})
        loader = Loader(
            settings,
            BatchSizes((1, 2, 16)),
            OneModelRuntime(loaded),
            batcher,
            tell=told.append,
            on_loop=lambda work: work(),
        )
        scenario(loader, told)

    asyncio.run(main())


VARIANTS = VariantsChosen("m", 3, "serving_default", dict.fromkeys((1, 2, 16), ("frozen", 1.5)))
PLACED = ModelPlaced("m", 3, ("fake:0",))
ROWS = [
    RowsProbed(
        "m",
        3,
        "serving_default",
        False,
        "probe",
        "requests share calls, proven by probe, up to 2 rows",
    ),
    RowsProbed(
        "m",
        3,
        "uneven",
        True,
        "",
        "each request runs alone: output 'y': it has no row for each row of the inputs",
    ),
    RowsProbed("m", 3, "pair", False, "probe", "requests share calls, proven by probe, up to 2 rows"),
]
#: It has no rows, whatever is proven.
WHOLE = RowsProbed(
    "m",
    3,
    "total",
    True,
    "",
    "each request runs alone: input 'x' has the shape [], output 'y' has the shape [], without a free first dimension",
    whole=True,
)
#: Larger batches were compared, too.
MORE_ROWS = [
    each._replace(explanation="requests share calls, proven by probe, up to 16 rows") for each in ROWS if each.proof
]
STEPS = [
    ModelImproving("m", 3, step)
    for step in ("larger batches", "execution variants", "shared calls of different shapes")
]


def test_a_model_that_loads_stays_open_and_what_was_found_is_told(tmp_path: Path) -> None:
    loaded = CountedModel()

    def scenario(loader: Loader, told: list[Event]) -> None:
        model = loader.load("m", 3, tmp_path)
        assert isinstance(model, Model)
        assert (model.name, model.version, model.sizes.allowed) == ("m", 3, (1, 2, 16))
        assert loaded.closes == 0
        assert told == [PLACED, *ROWS, WHOLE, STEPS[0], *MORE_ROWS, *STEPS[1:], VARIANTS, ModelImproving("m", 3, "")]
        assert [budget.seconds for budget in loaded.budgets] == [HANG_S]
        assert loader.progress == []

    with_loader(loaded, scenario, tmp_path)


class CentredModel(FakeLoadedModel):
    """A row's answer depends on the other rows."""

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        if signature != "serving_default":
            return super().run(signature, inputs, outputs)
        with np.errstate(invalid="ignore"):  # the probe sends infinity
            return {"y": inputs["x"] - inputs["x"].mean(0)}


def test_without_warm_up_rows_that_see_each_other_run_alone_all_the_same(tmp_path: Path) -> None:
    def scenario(loader: Loader, told: list[Event]) -> None:
        signature = loader.load("m", 3, tmp_path).signatures["serving_default"]
        alone = "output 'y': a row's answer depends on the other rows in a call of 2 rows"
        assert signature.why_alone() == alone
        assert RowsProbed("m", 3, "serving_default", True, "", f"each request runs alone: {alone}") in told

    with_loader(CentredModel(), scenario, tmp_path, warm_up=False)


def test_without_warm_up_the_rows_are_all_that_is_tried(tmp_path: Path) -> None:
    loaded = CountedModel()

    def scenario(loader: Loader, told: list[Event]) -> None:
        assert loader.load("m", 3, tmp_path).sizes.allowed == (1, 2, 16)
        assert told == [PLACED, MORE_ROWS[0], ROWS[1], MORE_ROWS[1], WHOLE]
        assert loaded.budgets == []

    with_loader(loaded, scenario, tmp_path, warm_up=False)


@pytest.mark.parametrize("batch_sizes", [(), (2, 16)])
def test_without_warm_up_requests_whose_rows_could_not_be_compared_run_alone(
    batch_sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.loading.loader._ROW_PROBE_S", 0.0)

    def scenario(loader: Loader, _: list[Event]) -> None:
        signatures = loader.load("m", 3, tmp_path, batch_sizes).signatures
        why = signatures["serving_default"].why_alone()
        assert "it is not proven yet that rows do not see each other: calls of " in why
        assert " were left out: " in why

    with_loader(CentredModel(), scenario, tmp_path, warm_up=False, load_budget_s=0.0)


def test_nothing_is_called_without_warm_up_where_a_setting_says_that_rows_share_calls(tmp_path: Path) -> None:
    loaded = CountedModel("run")

    def scenario(loader: Loader, _: list[Event]) -> None:
        assert loader.load("m", 3, tmp_path).signatures["serving_default"].alone == {}
        assert loaded.wanted == []

    with_loader(loaded, scenario, tmp_path, warm_up=False, row_independence={"m": "assume"})


def test_a_load_that_fails_closes_the_model_once_and_tells_nothing(tmp_path: Path) -> None:
    loaded = CountedModel("run")

    def scenario(loader: Loader, told: list[Event]) -> None:
        with pytest.raises(InferenceFailed, match=r"^run failed$"):
            loader.load("m", 3, tmp_path)
        assert loaded.closes == 1
        assert (told, loader.progress) == ([], [])

    with_loader(loaded, scenario, tmp_path)


class Weights:
    """What takes memory."""


@pytest.mark.parametrize("step", ["load", "run"])
def test_a_load_that_failed_holds_no_memory_although_its_error_is_kept(step: str, tmp_path: Path) -> None:
    """The frames of an error held the model, for six tries 640 MB."""
    held: list[weakref.ref[Weights]] = []

    def fail() -> None:
        weights = Weights()
        weights.own = weights  # type: ignore[attr-defined]  # as TensorFlow's functions refer to each other
        held.append(weakref.ref(weights))
        try:
            raise ValueError("deep inside")
        except ValueError as error:
            raise OutOfMemory("it failed") from error

    class Failing(CountedModel):
        def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            fail()
            raise AssertionError("not reached")

    class Runtime(OneModelRuntime):
        def load(self, path: Path) -> FakeLoadedModel:
            if step == "load":
                fail()
            return super().load(path)

    def scenario(loader: Loader, _: list[Event]) -> None:
        loader._runtime = Runtime(Failing())
        with pytest.raises(InferenceFailed) as kept:
            loader.load("m", 3, tmp_path)
        assert [each() for each in held] == [None]
        assert str(kept.value) == "it failed"

    with_loader(CountedModel(), scenario, tmp_path)


def test_what_was_counted_of_first_answers_goes_with_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[weakref.ref[FirstAnswers]] = []

    def count() -> FirstAnswers:
        first = FirstAnswers()
        counted.append(weakref.ref(first))
        return first

    monkeypatch.setattr("app.loading.loader.FirstAnswers", count)

    def scenario(loader: Loader, told: list[Event]) -> None:
        model = loader.load("m", 3, tmp_path)
        assert isinstance(model, Model)
        _, function, _ = model._placement.place(InferenceRequest(rows_of(1.0)))
        assert function.first in [each() for each in counted]
        model.release()
        told.clear()
        del model, function
        gc.collect()
        assert {each() for each in counted} == {None}

    with_loader(CountedModel(), scenario, tmp_path)


def test_what_was_counted_of_first_answers_goes_on_however_often_requests_are_placed_anew(tmp_path: Path) -> None:
    """Each step that makes a version faster does so: else its first requests would be compared again and again."""

    def scenario(loader: Loader, _: list[Event]) -> None:
        model = loader.load("m", 3, tmp_path)
        improvement: Any = model.release.__self__  # type: ignore[attr-defined]  # a method of it

        def first() -> object:
            _, function, _ = model._placement.place(InferenceRequest(rows_of(1.0)))
            return function.first

        known = first()
        assert known is not None
        for _ in range(2):
            placement = model._placement
            improvement._use_again()
            assert model._placement is not placement
            assert first() is known

    with_loader(CountedModel(), scenario, tmp_path)


def test_an_unexpected_error_keeps_where_it_was_raised_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def a_bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("app.loading.loader.warm_up", a_bug)

    def scenario(loader: Loader, _: list[Event]) -> None:
        with pytest.raises(ZeroDivisionError) as raised:
            loader.load("m", 3, tmp_path)
        assert "in a_bug" in raised.value.__notes__[0]

    with_loader(CountedModel(), scenario, tmp_path)


def test_each_later_step_that_fails_closes_the_model_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InferenceFailed("failed")

    for step in ("caller_signatures", "warm_up", "RequestPlacement", "Model"):
        loaded = CountedModel()

        def scenario(loader: Loader, told: list[Event], loaded: CountedModel = loaded) -> None:
            with pytest.raises(InferenceFailed):
                loader.load("m", 3, tmp_path)
            assert loaded.closes == 1
            assert told == []

        with monkeypatch.context() as patched:
            patched.setattr(f"app.loading.loader.{step}", fail)
            with_loader(loaded, scenario, tmp_path)


@pytest.mark.parametrize("fails", ["tune", "measure_calls", "probe_padding", "compile_buckets"])
def test_a_step_that_only_makes_it_faster_and_fails_leaves_the_version_as_it_is(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InferenceFailed("failed")

    monkeypatch.setattr(f"app.loading.improvement.{fails}", fail)
    loaded = CountedModel()

    def scenario(loader: Loader, told: list[Event]) -> None:
        loader.load("m", 3, tmp_path)
        assert loaded.closes == 0
        assert told[-1] == ModelImproving("m", 3, "")
        assert "Model m version 3 stays as it is" in caplog.text

    with_loader(loaded, scenario, tmp_path)


def test_wrong_batching_parameters_fail_the_load_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "batching_params.pbtxt").write_text("max_batch_size { value: 0 }")
    loaded = CountedModel()

    def scenario(loader: Loader, _: list[Event]) -> None:
        with pytest.raises(InvalidRequest, match="max_batch_size must be at least 1, not 0"):
            loader.load("m", 3, tmp_path)
        assert loaded.closes == 0
        assert not loaded.function.calls

    with_loader(loaded, scenario, tmp_path, per_model_batching=True)


def test_the_loader_tells_the_warm_up_in_progress(tmp_path: Path) -> None:
    class Watched(CountedModel):
        def tune(self, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget) -> Sequence[VariantChoice]:
            report(1, 9, "trying xla")
            seen.append(loaders[0].progress)
            return ()

    loaders: list[Loader] = []
    seen: list[list[str]] = []

    def scenario(loader: Loader, _: list[Event]) -> None:
        loaders.append(loader)
        loader.load("m", 3, tmp_path)
        assert seen == [["Model m version 3 warms up: 1 of 9, trying xla"]]

    with_loader(Watched(), scenario, tmp_path)


SPEC = TensorSpec("x", np.dtype(np.float32), (None, 2))
SIGNATURES = {"f": ModelSignature("f", {"tokens": SPEC, "mask": SPEC}, {}), "g": ModelSignature("g", {"x": SPEC}, {})}


def test_a_models_own_value_overrides_that_of_all() -> None:
    found = of_model({"tokens": 1, "bert/tokens": 2, "other/x": 3}, "bert")
    assert found["tokens"] == 2
    assert "x" not in found


def test_an_input_that_the_model_does_not_have_is_told(caplog: pytest.LogCaptureFixture) -> None:
    values = {"bert/tokens": 1, "bert/x": 1, "tokns": 1, "other/tokns": 1}
    warn_of_unknown("pad_values", values, "bert", SIGNATURES)
    assert not caplog.messages
    warn_of_unknown("pad_values", {**values, "bert/tokns": 1}, "bert", SIGNATURES)
    assert caplog.messages == ["pad_values names bert/tokns, but the inputs of model bert are: mask, tokens, x"]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (np.float32, "abc", "a number of type float32"),
        (np.float32, 1e40, "a number of type float32"),
        (ml_dtypes.bfloat16, "abc", "a number of type bfloat16"),
        (np.int32, "abc", "a whole number from -2147483648 to 2147483647 (int32)"),
        (np.uint8, 256, "a whole number from 0 to 255 (uint8)"),
        (np.int8, 1.5, "a whole number from -128 to 127 (int8)"),
        (bool, 2, "0 or 1 (bool)"),
    ],
)
def test_a_pad_value_that_its_input_cannot_hold_is_refused(dtype: Any, value: object, expected: str) -> None:
    signatures = {"f": ModelSignature("f", {"x": TensorSpec("x", np.dtype(dtype), (None, None))}, {})}
    for setting in ("x", "bert/x"):
        with pytest.raises(InvalidRequest) as refused:
            check_pad_values({"x": value, setting: value}, "bert", signatures)
        assert str(refused.value) == (
            f"pad_values: {setting}={value} does not fit input 'x' of model bert, signature 'f': expected {expected}"
        )
    check_pad_values({"x": value, "bert/x": 1}, "bert", signatures)
    check_pad_values({"y": value, "other/x": value}, "bert", signatures)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(np.float32, 0.1), (np.float32, "nan"), (np.int64, -3), (np.int32, 2.0), (bool, 1), (STRING, "abc"), (STRING, 1)],
)
def test_a_pad_value_that_its_input_can_hold_is_taken(dtype: Any, value: object) -> None:
    signatures = {"f": ModelSignature("f", {"x": TensorSpec("x", np.dtype(dtype), (None, None))}, {})}
    check_pad_values({"x": value}, "bert", signatures)


def test_a_model_whose_pad_value_is_wrong_is_not_served_and_its_memory_is_freed(tmp_path: Path) -> None:
    model = CountedModel()

    def scenario(loader: Loader, _: list[Event]) -> None:
        with pytest.raises(InvalidRequest, match=r"^pad_values: x=abc does not fit input 'x' of model m"):
            loader.load("m", 3, tmp_path)

    with_loader(model, scenario, tmp_path, pad_values={"x": "abc"})
    assert model.closes == 1


class PlainModel(FakeLoadedModel):
    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        return self.run(signature, inputs, outputs)

    def stop_variants(self, signature: str) -> None: ...


@pytest.mark.parametrize(
    ("more", "checked"),
    [
        ({}, True),
        ({"pad_shapes": "always"}, False),
        ({"row_independence": {"m": "assume"}}, False),
        ({"row_independence": {"m/serving_default": "assume"}}, False),
        ({"row_independence": {"m/pair": "assume"}}, True),
    ],
)
def test_what_a_setting_forces_gets_no_shadow_checks(more: dict[str, Any], checked: bool, tmp_path: Path) -> None:
    def scenario(loader: Loader, _: list[Event]) -> None:
        placement = loader.load("m", 3, tmp_path)._placement
        _, function, _ = placement.place(InferenceRequest({"x": np.ones((1, 2), np.float32)}))
        assert (function.plain is not None) == checked

    with_loader(PlainModel(), scenario, tmp_path, **more)


@pytest.mark.parametrize("fails", ["", "run"])
def test_when_a_load_has_ended_nothing_is_left_that_others_would_wait_for(fails: str, tmp_path: Path) -> None:
    """While a version is loaded, what makes others faster waits, and the server tells what the load does."""

    def scenario(loader: Loader, _: list[Event]) -> None:
        try:
            loader.load("m", 3, tmp_path)
        except ModelUnusable:
            assert fails
        assert loader._improver._is_idle()
        assert (loader.progress, loader._loading) == ([], set())

    with_loader(CountedModel(fails), scenario, tmp_path)


def test_what_was_found_of_a_graph_holds_for_each_version_that_has_it(tmp_path: Path) -> None:
    loaded = CountedModel()
    signature = replace(loaded.signatures["serving_default"], fingerprint="g", weights="w")
    loaded.signatures = {"serving_default": signature}

    def scenario(loader: Loader, told: list[Event]) -> None:
        assert not loader.load("m", 3, tmp_path).signatures["serving_default"].why_alone()
        loader._proofs.disprove("g", "its rows see each other")
        for name, version in (("m", 4), ("other", 1)):
            assert loader.load(name, version, tmp_path).signatures["serving_default"].why_alone()
            probed = [each for each in told if isinstance(each, RowsProbed) and each[:2] == (name, version)]
            assert [each.proof for each in probed] == [""]

    with_loader(loaded, scenario, tmp_path)
