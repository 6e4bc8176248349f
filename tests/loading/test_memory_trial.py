"""Children that call real models."""

import os
import resource
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
import tensorflow as tf

from app.core.machine_memory import PeakMemory
from app.loading.call_memory import MemoryBudget
from app.loading.memory_trial import MemoryTrial, TrialFailed, measure_in_child
from tests.support import savedmodels

MB = 2**20
SIZES = (1, 2, 4, 8, 16)


def save_wide(folder: Path, mb: int) -> Path:
    """Each row gets an answer of so many megabytes."""
    module = tf.Module()
    answer = tf.function(
        lambda x: {"y": x + tf.zeros([1, mb * MB // 4])},
        input_signature=[tf.TensorSpec([None, 1], tf.float32, name="x")],
    )
    tf.saved_model.save(module, str(folder), signatures={"serving_default": answer})
    return folder


def children_of_this_process() -> set[str]:
    tasks = Path("/proc/self/task").iterdir()
    return {child for task in tasks for child in (task / "children").read_text().split()}


def trial(path: Path, most_bytes: float = 1e9) -> MemoryTrial:
    return MemoryTrial(str(path), "tensorflow", SIZES, most_bytes)


def test_calls_are_measured_up_to_the_one_that_takes_too_much_and_this_process_takes_nothing(tmp_path: Path) -> None:
    memory = MemoryBudget(lambda: inf)
    with PeakMemory() as peak:
        measure_in_child(trial(save_wide(tmp_path, 20), 300.0 * MB), memory, lambda: True)
    found = {cells: memory.expected_bytes("serving_default", cells) / MB for cells in SIZES}
    assert 20 <= found[1] <= 60
    assert 80 <= found[4] <= 200
    assert found[16] == inf
    assert peak.bytes < 20 * MB


def test_nothing_is_kept_of_a_child_that_is_not_wanted_any_more(tmp_path: Path) -> None:
    looks = iter([True, True])
    children = os.times().children_user
    running = children_of_this_process()
    with pytest.raises(TrialFailed, match="no time"):
        measure_in_child(trial(save_wide(tmp_path, 1)), MemoryBudget(), lambda: next(looks, False))
    assert os.times().children_user - children < 3.0
    assert children_of_this_process() == running


@pytest.mark.parametrize("make", [lambda folder: folder / "gone", savedmodels.make_counter])
def test_a_model_that_cannot_be_called_there_is_told(tmp_path: Path, make: Callable[[Path], Path | None]) -> None:
    with pytest.raises(TrialFailed, match="cannot be loaded or called"):
        measure_in_child(trial(make(tmp_path) or tmp_path), MemoryBudget(), lambda: True)


def test_a_process_that_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.loading.memory_trial.sys.executable", str(tmp_path / "gone"))
    with pytest.raises(TrialFailed, match="No such file"):
        measure_in_child(trial(tmp_path), MemoryBudget(), lambda: True)


def test_no_child_is_started_where_there_is_no_room_for_it(tmp_path: Path) -> None:
    with pytest.raises(TrialFailed, match="no room for another copy"):
        measure_in_child(MemoryTrial(str(tmp_path), "tensorflow", SIZES, 1e15), MemoryBudget(), lambda: True)


def test_the_limit_of_a_child_does_not_touch_its_parent(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    measure_in_child(trial(save_wide(tmp_path, 1), 100.0 * MB), MemoryBudget(), lambda: True)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
