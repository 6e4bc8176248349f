from collections.abc import Callable
from math import inf

import numpy as np
import pytest

from app.core.inference import Array
from app.core.time_budget import TooMuchMemory
from app.loading.call_memory import MemoryBudget

MB = 2**20


def answering(mb: float) -> Callable[[], dict[str, Array]]:
    return lambda: {"y": np.ones(int(mb * MB), np.uint8)}


def measured(memory: MemoryBudget, cells: int, mb: float) -> None:
    memory.measured("f", cells, {"x": np.ones(cells, np.uint8)}, answering(mb))


def test_a_call_that_would_take_more_than_half_of_what_a_step_may_is_refused() -> None:
    memory = MemoryBudget(lambda: 100.0 * MB)  # measured: what the whole process takes, so a little more
    memory.check("f", 1 << 40)  # nothing is known yet
    for _ in range(2):
        measured(memory, 1, 10.0)
    memory.check("f", 4)
    with pytest.raises(TooMuchMemory, match=r"signature 'f' would take 6\d MB of memory, and .* may take 50 MB"):
        memory.check("f", 6)
    memory.check("g", 6)
    memory.forget("f")
    memory.note("f", 4, inf)
    with pytest.raises(TooMuchMemory, match=r"would take more memory than a child process may, and .* may take 50 MB"):
        memory.check("f", 4)


def test_the_system_is_asked_only_before_a_call_that_may_take_much() -> None:
    asked = 0

    def most_bytes() -> float:
        nonlocal asked
        asked += 1
        return 100.0 * MB

    memory = MemoryBudget(most_bytes)
    memory.note("f", 10, 1000.0)
    for _ in range(5):
        memory.check("f", 10)
        measured(memory, 10, 0.001)
    memory.check("f", 10_000)  # a megabyte, by the estimate
    assert asked == 0
    memory.check("f", 11_000)
    assert asked == 1
    with pytest.raises(TooMuchMemory):
        memory.check("f", 10 * MB)
    assert asked == 2


def test_what_is_expected_follows_the_calls_that_are_next_in_size() -> None:
    memory = MemoryBudget(lambda: 1e12)
    memory.note("f", 10, 100.0)
    assert memory.expected_bytes("f", 20) == 200.0
    memory.note("f", 20, 110.0)  # a call takes 90 by itself
    assert memory.expected_bytes("f", 5) == 100.0
    assert memory.expected_bytes("f", 15) == 110.0
    assert memory.expected_bytes("f", 40) == 130.0
    memory.note("f", 40, 310.0)  # it grows faster than its inputs
    assert memory.expected_bytes("f", 80) == 710.0
    memory.note("f", 80, inf)
    assert memory.expected_bytes("f", 50) == 410.0
    assert memory.expected_bytes("f", 80) == memory.expected_bytes("f", 160) == inf
    assert memory.expected_bytes("g", 200) == 0.0


def test_a_call_takes_what_the_process_took_meanwhile_also_what_is_free_again() -> None:
    def call() -> dict[str, Array]:
        assert np.ones(100 * MB, np.uint8).any()
        return {"y": np.ones(1)}

    memory = MemoryBudget(lambda: 1e12)
    memory.measured("f", 1, {}, answering(1.0))
    memory.measured("f", 1, {}, call)
    assert 90 * MB < memory.expected_bytes("f", 1) < 150 * MB


def test_the_first_call_does_not_count_as_it_also_makes_what_stays() -> None:
    memory = MemoryBudget(lambda: 1e12)
    measured(memory, 1, 80.0)
    assert memory.expected_bytes("f", 1) == 0.0
    measured(memory, 1, 10.0)
    assert memory.expected_bytes("f", 1) == pytest.approx(10 * MB, rel=0.5)


def test_only_calls_of_new_magnitude_are_measured() -> None:
    memory = MemoryBudget(lambda: 1e12)
    for cells, mb in ((1, 1.0), (1, 10.0), (2, 90.0), (3, 30.0), (5, 90.0)):
        measured(memory, cells, mb)
    assert memory.expected_bytes("f", 3) == pytest.approx(30 * MB, rel=0.5)
    assert memory.expected_bytes("f", 5) == pytest.approx(50 * MB, rel=0.5)


def test_what_was_measured_alone_is_believed() -> None:
    memory = MemoryBudget(lambda: 1e12)
    for _ in range(2):
        measured(memory, 1, 80.0)
    memory.forget("f")
    memory.note("f", 1, 7.0)
    measured(memory, 1, 80.0)
    assert memory.expected_bytes("f", 1) == 7.0


def test_where_devices_refuse_by_themselves_nothing_is_measured() -> None:
    memory = MemoryBudget.unlimited()
    for _ in range(3):
        measured(memory, 1, 80.0)
    memory.check("f", 1 << 60)
    assert memory.expected_bytes("f", 1) == 0.0
    assert not memory.is_tight("f", 1 << 60)


def test_it_is_tight_where_an_estimate_may_be_wrong() -> None:
    memory = MemoryBudget(lambda: 80.0)
    assert not memory.is_tight("f", 1 << 60)
    memory.note("f", 1, 1.0)
    assert not memory.is_tight("f", 10)
    assert memory.is_tight("f", 11)
