"""Which mixes are computed, what follows from them, and that all that was kept is let go."""

import gc
from collections.abc import Mapping
from weakref import ref

import ml_dtypes  # noqa: F401 - names bfloat16
import numpy as np
import pytest

from app.batching.proof.kept_rows import (
    LEAST_ROWS,
    MOST_ROWS,
    KeptRows,
    row_count,
)
from app.batching.proof.traffic_trial import MIXES_ROWS, MixResult, TrafficFound, TrafficTrial, rungs
from app.batching.shapes.ragged import RaggedRows
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array

SIZES = BatchSizes.powers_of_two(16)


def new_trial(found: list[TrafficFound] | None = None, proven: int = 1) -> TrafficTrial:
    return TrafficTrial(SIZES, (found if found is not None else []).append, proven=proven)


def rows(*values: float) -> Mapping[str, Array]:
    return {"x": np.array(values).reshape(-1, 1)}


def offer(trial: TrafficTrial, *values: float, caller: str = "") -> None:
    x = rows(*values)
    trial.offer(x, {"y": 2 * x["x"]}, caller)


def fill(trial: TrafficTrial, count: int = LEAST_ROWS, first: int = 1, caller: str = "") -> None:
    for value in range(first, first + count):
        offer(trial, float(value), caller=caller)


def agree_once(trial: TrafficTrial) -> bool:
    mix = trial.next_mix(0.0)
    if mix is not None:
        trial.record(mix, MixResult("agrees"), 0.0)
    return mix is not None


def test_equal_rows_prove_nothing() -> None:
    trial = new_trial()
    for _ in range(40):
        offer(trial, 1.0)
        offer(trial, 2.0, 1.0)
    assert trial.missing == "2 of 8 different rows have come"
    assert trial.next_mix(0.0) is None


def test_where_callers_are_told_apart_rows_of_several_are_needed_and_one_that_sends_much_gives_way() -> None:
    trial = new_trial()
    fill(trial, MOST_ROWS, caller="a")
    assert trial.missing == "", "one caller is known"
    offer(trial, 1.0, caller="b")
    assert trial.missing == "all rows came from one caller"
    fill(trial, 30, first=1000, caller="b")
    assert trial.missing == ""
    mix = trial.next_mix(0.0)
    assert mix is not None


def test_an_input_or_output_that_is_the_same_in_all_rows_keeps_rows_from_being_proven() -> None:
    found: list[TrafficFound] = []
    trial = new_trial(found)
    for value in range(60):
        x = np.array([[float(value)]])
        trial.offer({"x": x, "flag": np.zeros(1, bool)}, {"y": x, "large": x > 100})
    assert trial.missing == "input 'flag' was the same in all rows"
    tried = 0
    while agree_once(trial):
        tried += 1
    assert 0 < tried < 60, "what mixes all the same is found"
    assert found == []

    trial.offer({"x": np.array([[1000.0]]), "flag": np.ones(1, bool)}, {"y": np.array([[1000.0]]), "large": x > -1})
    assert trial.missing == ""
    assert trial.tried_rows == 1, "sizes begin anew"
    while agree_once(trial):
        pass
    assert found == [TrafficFound(8), TrafficFound(16)]


def test_each_row_that_is_kept_stands_in_a_mix_before_the_first_proof() -> None:
    found: list[TrafficFound] = []
    trial = TrafficTrial(BatchSizes((1, 2)), found.append)
    fill(trial, MOST_ROWS)
    seen = set[float]()
    while not found:
        mix = trial.next_mix(0.0)
        assert mix is not None
        assert len({row.request for row in mix.rows}) == len(mix.rows)
        if len(mix.rows) > 1:
            seen |= {float(row.inputs["x"][0, 0]) for row in mix.rows}
        trial.record(mix, MixResult("agrees"), 0.0)
    assert seen == set(np.arange(1.0, MOST_ROWS + 1))


@pytest.mark.parametrize(
    ("verdict", "settled"),
    [
        ("doubtful", TrafficFound(1, MIXES_ROWS, disproved=True)),
        ("refused", TrafficFound(1, "calls of 2 rows: the model rejects this")),
    ],
)
def test_one_doubt_or_refusal_is_forgiven_and_two_are_not(verdict: str, settled: TrafficFound) -> None:
    found: list[TrafficFound] = []
    trial = new_trial(found)
    fill(trial)
    for _ in range(2):
        assert found == []
        mix = trial.next_mix(0.0)
        assert mix is not None
        trial.record(mix, MixResult(verdict, "the model rejects this"), 0.0)
    assert found == [settled]


def test_a_mix_has_rows_of_two_requests_at_least_and_each_row_once_while_there_are_enough() -> None:
    trial, sizes = new_trial(), set()
    for first in range(1, 65, 4):
        offer(trial, *[float(value) for value in range(first, first + 4)])
    while (mix := trial.next_mix(0.0)) is not None:
        sizes.add(len(mix.rows))
        if len(mix.rows) > 1:
            assert len({row.request for row in mix.rows}) > 1
        assert len({id(row) for row in mix.rows}) == len(mix.rows)
        trial.record(mix, MixResult("agrees"), 0.0)
    assert max(sizes) == 16


def test_what_a_mix_shows_counts_though_the_trial_was_ended_meanwhile() -> None:
    for verdict, expected in (("mixes", True), ("random", True), ("agrees", False), ("refused", False)):
        found: list[TrafficFound] = []
        trial = new_trial(found)
        fill(trial)
        mix = trial.next_mix(0.0)
        assert mix is not None
        trial.end()
        trial.record(mix, MixResult(verdict), 0.0)
        assert bool(found) is expected


def test_what_was_proven_before_is_the_beginning_and_is_told_when_all_is_tried() -> None:
    found: list[TrafficFound] = []
    trial = new_trial(found, proven=8)
    fill(trial)
    sizes = set()
    while (mix := trial.next_mix(0.0)) is not None:
        sizes.add(mix.size)
        trial.record(mix, MixResult("agrees"), 0.0)
    assert (sizes, found) == ({16}, [TrafficFound(16)])
    assert new_trial(proven=16).ended, "nothing is left"


@pytest.mark.parametrize("end", ["end", "disprove", "give_up", "proof"])
def test_all_that_is_kept_is_let_go_at_the_end(end: str) -> None:
    trial = new_trial()
    fill(trial)
    mix = trial.next_mix(0.0)
    assert mix is not None
    kept = [ref(row.inputs["x"]) for row in mix.rows]
    del mix
    assert trial.bytes > 0
    if end == "end":
        trial.end()
    elif end == "proof":
        while agree_once(trial):
            pass
    else:
        getattr(trial, end)("a reason")
    gc.collect()
    assert trial.ended
    assert trial.bytes == 0
    assert not any(row() for row in kept)
    fill(trial)
    assert trial.bytes == 0, "nothing is kept after that"


def test_ragged_rows_are_counted_and_kept_by_their_splits() -> None:
    ragged = RaggedRows({"x": ("x_1",)})
    trial = TrafficTrial(SIZES, lambda _: None, KeptRows(ragged=ragged))
    for value in range(0, 40, 2):
        inputs = {"x": np.arange(3) + 10 * value, "x_1": np.array([0, 2 - value % 4 // 2, 3])}
        trial.offer(inputs, {"y": np.array([value, value + 1])})
    assert trial.missing == ""
    mix = trial.next_mix(0.0)
    assert mix is not None
    assert {len(row.inputs["x_1"]) for row in mix.rows} == {2}
    trial.offer({"x": np.arange(3), "x_1": np.array([0, 5])}, {"y": np.array([1])})
    assert row_count({"x": np.arange(3), "x_1": np.array([0, 5])}, ragged) == -1


def test_sizes_that_are_tried_grow_by_twice_at_least_and_end_with_the_largest() -> None:
    assert [*rungs(BatchSizes((1, 2, 3, 4, 5, 8, 9)))] == [2, 4, 8, 9]
    assert [*rungs(BatchSizes((6, 24)))] == [6, 24]
    assert [*rungs(BatchSizes((1,)))] == []


def test_a_trial_says_what_it_waits_for() -> None:
    trial = new_trial()
    offer(trial, 1.0)
    assert repr(trial) == "<TrafficTrial proven up to 1 rows, 1 kept, 1 of 32 different rows have come>"
    fill(trial)
    assert repr(trial) == "<TrafficTrial proven up to 1 rows, 32 kept, trying 2>"
    trial.end()
    assert repr(trial) == "<TrafficTrial proven up to 1 rows, 0 kept, ended>"
