"""What follows in the background after a version is ready, and that requests are not touched by it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from mmap import mmap
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.config.settings import Settings
from app.core import events
from app.core.batch_sizes import BatchSizes
from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory
from app.core.inference import Array, InferenceRequest, ModelSignature
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.call_memory import MemoryBudget
from app.loading.loader import Loader
from app.loading.memory_trial import MemoryTrial, TrialFailed
from app.model import Model
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, FakeRuntime, rows_of
from tests.support.waiting import HANG_S, until


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine computes the first calls late, but it computes them."""
    monkeypatch.setattr("app.loading.loader._FIRST_S", HANG_S)
    monkeypatch.setattr("app.loading.loader._ROW_PROBE_S", HANG_S)


class LargeCallsWait(FakeLoadedModel):
    """A call of more than 8 rows waits until it is allowed, or raises `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.signatures: Mapping[str, ModelSignature] = {"serving_default": self.signatures["serving_default"]}
        self.error = error
        self.called = Event()
        self.allowed = Event()
        self.computing = Lock()

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        if len(inputs["x"]) > 8:
            if self.error:
                raise self.error
            with self.computing:
                self.called.set()
                self.allowed.wait()
        return super().run(signature, inputs, outputs)

    def close(self) -> None:
        assert not self.computing.locked(), "its memory is freed while it computes"
        super().close()


class TheseModels(FakeRuntime):
    devices = ("CPU:0",)

    def __init__(self, *models: FakeLoadedModel) -> None:
        super().__init__()
        self.models = list(models)

    def load(self, path: Path) -> FakeLoadedModel:
        return self.models.pop(0)


class TakesTime(FakeLoadedModel):
    """Takes 0.2 s for each row, on a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.signatures: Mapping[str, ModelSignature] = {"serving_default": self.signatures["serving_default"]}
        self.now = 0.0

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        self.now += 0.2 * len(inputs["x"])
        return super().run(signature, inputs, outputs)

    def clock(self) -> float:
        return self.now


def with_loaded(
    loaded: FakeLoadedModel,
    scenario: Callable[[Model, Loader, list[events.ModelImproving]], Awaitable[None]],
    *later: FakeLoadedModel,
    **more: Any,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(0.0)], WorkConserving(), BatcherOptions(100))
        told: list[events.ModelImproving] = []

        def tell(event: events.Event) -> None:
            if isinstance(event, events.ModelImproving):
                loop.call_soon_threadsafe(told.append, event)

        settings = Settings(max_batch_size=32, **{"load_budget_s": HANG_S, **more})
        sizes, runtime = BatchSizes.powers_of_two(32), TheseModels(loaded, *later)
        loader = Loader(settings, sizes, runtime, batcher, tell=tell, on_loop=loop.call_soon_threadsafe)
        try:
            await scenario(await asyncio.to_thread(loader.load, "m", 1, Path()), loader, told)
        finally:
            if isinstance(loaded, LargeCallsWait):
                loaded.allowed.set()
            loader.close()

    asyncio.run(main())


def done(told: list[events.ModelImproving]) -> bool:
    return bool(told) and not told[-1].step


async def largest_batch(model: Model) -> int:
    request = InferenceRequest(rows_of(1.0, 32))
    answer = await model.infer(request)
    assert answer.outputs["y"].shape == (32, 2)
    assert answer.timing is not None
    return answer.timing.rows


def test_a_version_is_ready_with_small_batches_and_larger_ones_follow() -> None:
    loaded = LargeCallsWait()

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        assert model.sizes.largest == 32  # what it is to be called with
        assert not loaded.function.calls or max(map(len, loaded.function.calls)) == 8
        assert await largest_batch(model) == 8
        await asyncio.to_thread(loaded.called.wait)
        assert not done(told)
        loaded.allowed.set()
        await until(lambda: done(told))
        assert [each.step for each in told] == [
            "waiting for an idle moment",
            "larger batches",
            "execution variants",
            "shared calls of different shapes",
            "",
        ]
        assert await largest_batch(model) == 32

    with_loaded(loaded, scenario)


def test_it_is_tuned_before_it_is_ready_if_a_deployment_says_so() -> None:
    loaded = LargeCallsWait()
    loaded.allowed.set()

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        assert await largest_batch(model) == 32
        await until(lambda: done(told))

    with_loaded(loaded, scenario, ready_when="tuned")


@pytest.mark.parametrize("error", [OutOfMemory("no room for 16 rows"), InferenceFailed("too large")])
def test_a_size_that_fails_is_dropped_and_the_version_is_served(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        await until(lambda: done(told))
        assert await largest_batch(model) == 8
        assert f"Model m version 1 gets batches of at most 8 rows: {error}" in caplog.messages

    with_loaded(LargeCallsWait(error), scenario)


def test_a_signature_that_rejects_the_samples_is_told_once_and_not_for_each_larger_size(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    class Rejects(LargeCallsWait):
        def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            raise InvalidRequest("no image")

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        await until(lambda: done(told))
        lines = [message for message in caplog.messages if "not warmed up" in message]
        assert lines == ["Signature 'serving_default' is not warmed up, because it rejects the sample inputs: no image"]

    with_loaded(Rejects(), scenario)


def test_a_size_for_which_there_is_no_time_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        await until(lambda: done(told))
        assert await largest_batch(model) == 8
        assert "Model m version 1 gets batches of at most 8 rows: " in caplog.text

    with_loaded(LargeCallsWait(), scenario, load_budget_s=0.0)


class TakesMemory(FakeLoadedModel):
    """A call takes 10 MB for each row, beside its answer."""

    def __init__(self, row_mb: int = 10) -> None:
        super().__init__()
        self.signatures: Mapping[str, ModelSignature] = {"serving_default": self.signatures["serving_default"]}
        self.row_mb = row_mb

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        with mmap(-1, len(inputs["x"]) * self.row_mb << 20) as taken:  # not of freed memory
            taken[::4096] = b"x" * (len(taken) // 4096)
        return super().run(signature, inputs, outputs)


def give_memory(monkeypatch: pytest.MonkeyPatch, megabytes: int) -> None:
    """What one step of a load may take."""
    monkeypatch.setattr("app.loading.loader.MemoryBudget", lambda: MemoryBudget(lambda: megabytes * 2.0**20))


@pytest.mark.parametrize(("memory_mb", "largest"), [(1 << 20, 32), (450, 16), (110, 4), (30, 1)])
def test_sizes_whose_calls_would_take_too_much_memory_are_never_called(
    memory_mb: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call may take half of it. No child process can be started, so estimates count."""

    def fail(*_: object) -> None:
        raise TrialFailed("there is no process")

    monkeypatch.setattr("app.loading.improvement.measure_in_child", fail)
    loaded = TakesMemory()

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        await until(lambda: done(told))
        assert max(map(len, loaded.function.calls)) == largest
        assert await largest_batch(model) == largest

    give_memory(monkeypatch, memory_mb)
    with_loaded(loaded, scenario)


@pytest.mark.parametrize(("row_mb", "measured_mb", "largest"), [(2, 200.0, 8), (10, 1.0, 32)])
def test_what_a_child_process_measured_counts(
    row_mb: int, measured_mb: float, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An estimate may be wrong: the memory of calls may grow faster than their rows, or others took it."""
    trials = []

    def measure(trial: MemoryTrial, memory: MemoryBudget, is_wanted: Callable[[], bool]) -> None:
        trials.append(trial)
        assert is_wanted()
        memory.forget("serving_default")
        for rows in trial.sizes[1:]:
            memory.note("serving_default", 2 * rows, measured_mb * 2**20)

    monkeypatch.setattr("app.loading.improvement.measure_in_child", measure)
    loaded = TakesMemory(row_mb)

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        await until(lambda: done(told))
        assert await largest_batch(model) == largest
        (trial,) = trials
        assert (trial.sizes, trial.most_bytes) == ([1, 16, 32], 100 * 2**20)

    give_memory(monkeypatch, 200)
    with_loaded(loaded, scenario)


@pytest.mark.parametrize(
    ("ready_when", "load_budget_s", "largest"), [("warm", 8, 32), ("tuned", 8, 32), ("warm", 4, 16)]
)
def test_what_did_not_fit_into_the_budget_is_done_later_but_no_call_is_longer_than_it(
    ready_when: str, load_budget_s: float, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of 16 and 32 rows take 3.2 and 6.4 s, and rows must be compared at both sizes."""
    loaded = TakesTime()
    for module in ("app.loading.loader", "app.loading.improvement"):
        monkeypatch.setattr(f"{module}.TimeBudget", partial(TimeBudget, clock=loaded.clock))
    monkeypatch.setattr("app.loading.loader.BudgetedModel", partial(BudgetedModel, clock=loaded.clock))

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        await until(lambda: done(told))
        assert max(map(len, loaded.function.calls)) == largest
        assert await largest_batch(model) == largest
        assert loaded.now < 16 + (1 + 2 + 4 + 8) * load_budget_s

    with_loaded(loaded, scenario, load_budget_s=load_budget_s, ready_when=ready_when)


@pytest.mark.parametrize(("of_first_s", "of_rest", "largest"), [(60.0, 0.0, 8), (0.0, 0.0, 1), (0.0, 0.5, 32)])
def test_rows_share_calls_only_of_sizes_for_which_there_was_time_to_compare_them(
    of_first_s: float, of_rest: float, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine left none: rows of a model that mixes them shared calls."""
    monkeypatch.setattr("app.loading.loader._ROW_PROBE_S", of_first_s)
    monkeypatch.setattr("app.loading.improvement._ROWS_SHARE", of_rest)
    loaded = LargeCallsWait()
    loaded.allowed.set()

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        await until(lambda: done(told))
        assert await largest_batch(model) == largest

    with_loaded(loaded, scenario)


def test_memory_is_freed_after_the_call_under_way_and_nothing_is_called_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    loaded = LargeCallsWait()

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        await asyncio.to_thread(loaded.called.wait)
        closing = asyncio.create_task(model.close())
        await until(lambda: model.closing)
        assert not loaded.closed
        loaded.allowed.set()
        await closing
        assert loaded.closed
        assert max(map(len, loaded.function.calls)) == 16
        told_of_it = [each.message for each in caplog.records if each.name.startswith("app.")]
        assert not [each for each in told_of_it if "warms up" not in each], "nothing was found out about it"
        await until(lambda: done(told))

    with_loaded(loaded, scenario)


def test_a_version_that_is_unloaded_before_its_turn_is_never_called_again() -> None:
    loaded, second = LargeCallsWait(), LargeCallsWait()

    async def scenario(_: Model, loader: Loader, told: list[events.ModelImproving]) -> None:
        await asyncio.to_thread(loaded.called.wait)
        other = await asyncio.to_thread(loader.load, "other", 1, Path())
        calls = len(second.function.calls)
        await other.close()
        assert second.closed
        loaded.allowed.set()
        await until(lambda: sum(not each.step for each in told) == 2)
        assert len(second.function.calls) == calls

    with_loaded(loaded, scenario, second)


def test_requests_that_were_accepted_before_keep_their_place_and_are_waited_for() -> None:
    loaded = LargeCallsWait()

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        waiting = [asyncio.create_task(model.infer(InferenceRequest(rows_of(value)))) for value in (1.0, 2.0)]
        await asyncio.sleep(0)
        loaded.allowed.set()
        await until(lambda: done(told))
        waiting.append(asyncio.create_task(model.infer(InferenceRequest(rows_of(3.0)))))
        await asyncio.sleep(0)
        await model.close()
        answers = await asyncio.gather(*waiting)
        assert [answer.outputs["y"][0, 0] for answer in answers] == [2.0, 4.0, 6.0]

    with_loaded(loaded, scenario)


def test_answers_do_not_change_while_placements_are_swapped_under_load() -> None:
    loaded = LargeCallsWait()
    loaded.allowed.set()

    async def scenario(model: Model, _: Loader, told: list[events.ModelImproving]) -> None:
        value = 0.0
        while not done(told):
            values = [value + more for more in range(5)]
            answers = await asyncio.gather(*[model.infer(InferenceRequest(rows_of(each))) for each in values])
            assert [answer.outputs["y"][0, 0] for answer in answers] == [np.float32(2 * each) for each in values]
            value += 5

    with_loaded(loaded, scenario)
