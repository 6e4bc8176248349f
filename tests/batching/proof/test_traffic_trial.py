"""What is kept of requests, when that is enough, and that it is let go."""

import gc
from collections.abc import Mapping
from weakref import ref

import ml_dtypes  # noqa: F401 - names bfloat16
import numpy as np
import pytest

from app.batching.proof.traffic_trial import (
    LEAST_REQUESTS,
    LEAST_ROWS,
    MOST_BYTES,
    MOST_ROWS,
    MixResult,
    TrafficFound,
    TrafficTrial,
    row_count,
    rungs,
)
from app.batching.shapes.ragged import RaggedRows
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array, string_array

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


def test_a_few_rows_are_enough_where_callers_send_no_others() -> None:
    trial = new_trial()
    for turn in range(70):
        fill(trial, 8)
        if turn == 5:
            assert trial.missing.startswith("8 of 32")
    assert trial.missing == ""


def test_rows_of_few_requests_are_not_enough() -> None:
    trial = new_trial()
    for request in range(LEAST_REQUESTS - 1):
        offer(trial, *[100.0 * request + value for value in range(40)])
    assert trial.missing == f"different rows of {LEAST_REQUESTS - 1} of {LEAST_REQUESTS} requests have come"
    offer(trial, 1e4)
    assert trial.missing == ""


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


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_rows_of_nan_and_infinity_do_not_count(odd: float) -> None:
    trial = new_trial()
    for value in range(60):
        trial.offer({"x": np.array([[value, odd]])}, {"y": np.array([[value]])})
        trial.offer({"x": np.array([[value, 1.0]])}, {"y": np.array([[odd]])})
    assert trial.bytes == 0
    assert trial.missing.startswith("0 of")


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "int64", "bool", "complex64"])
def test_rows_of_every_type_are_kept(name: str) -> None:
    trial = new_trial()
    trial.offer({"x": np.ones((1, 3), np.dtype(name))}, {"y": np.ones((1, 3), np.dtype(name))})
    trial.offer({"x": np.zeros((1, 3), np.dtype(name))}, {"y": np.zeros((1, 3), np.dtype(name))})
    assert trial.missing.startswith("2 of")


def test_texts_that_differ_only_in_where_they_end_are_different_rows() -> None:
    trial = new_trial()
    for texts in ([b"a", b"bc"], [b"ab", b"c"], [b"ab", b"c"]):
        trial.offer({"x": string_array(texts).reshape(1, 2)}, {"y": np.array([len(texts[0])])})
    assert trial.missing.startswith("2 of")


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


def test_values_that_differ_by_rounding_are_the_same() -> None:
    trial = new_trial()
    for value in range(60):
        x = np.array([[1.0 + value * 1e-14]])
        trial.offer({"x": x}, {"y": x})
    assert trial.missing == "input 'x' was the same in all rows"


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


def test_one_doubt_is_forgiven_and_two_are_not() -> None:
    found: list[TrafficFound] = []
    trial = new_trial(found)
    fill(trial)
    for _ in range(2):
        assert found == []
        mix = trial.next_mix(0.0)
        assert mix is not None
        trial.record(mix, MixResult("doubtful"), 0.0)
    assert found[0].disproved


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


# --- memory ---


def test_what_is_kept_is_bounded_in_rows_and_bytes() -> None:
    trial = new_trial()
    fill(trial, 500)
    assert trial.bytes == MOST_ROWS * 16
    trial = new_trial()
    row = np.zeros((1, 1 << 19))
    for value in range(40):
        row[0, 0] = value
        trial.offer({"x": row}, {"y": row[:, :1].copy()})
        assert trial.bytes <= MOST_BYTES
    assert trial.missing == "", "11 rows are enough if no more fit"


def test_no_row_is_kept_that_finds_no_room() -> None:
    trial = new_trial()
    x = rows(1.0)
    trial.offer(x, {"y": x["x"]}, room=15)
    assert trial.bytes == 0
    trial.offer(x, {"y": x["x"]}, room=16)
    assert trial.bytes == 16


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


def test_rows_of_other_shapes_are_kept_only_once_those_of_the_first_do_not_come_any_more() -> None:
    trial = new_trial()
    offer(trial, 1.0)
    wide = np.arange(300.0)
    for value in wide:
        trial.offer({"x": np.array([[value, 1.0]])}, {"y": np.array([[value]])})
        if value == 100:
            assert trial.missing.startswith("1 of")
    assert trial.missing == ""


# --- rows ---


def test_requests_without_equally_many_rows_take_no_part() -> None:
    assert row_count({"x": np.zeros((2, 3)), "z": np.zeros(2)}, None) == 2
    assert row_count({"x": np.zeros((2, 3)), "z": np.zeros(3)}, None) == -1
    assert row_count({"x": np.zeros((2, 3)), "z": np.array(1)}, None) == -1
    assert row_count({}, None) == -1
    trial = new_trial()
    trial.offer(rows(1.0, 2.0), {"y": np.array([3.0])})
    trial.offer({"x": np.zeros((0, 1))}, {"y": np.zeros((0, 1))})
    assert trial.bytes == 0


def test_ragged_rows_are_counted_and_kept_by_their_splits() -> None:
    ragged = RaggedRows({"x": ("x_1",)})
    trial = TrafficTrial(SIZES, lambda _: None, ragged=ragged)
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
