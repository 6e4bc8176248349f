from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.batch import execute
from app.batching.request import PendingRequest
from app.batching.shapes.ragged import RaggedRows
from app.core.inference import Array
from tests.support.fakes import FakeReply, batch_function

#: A ragged input of two dimensions, one of three, and one number for each row.
RAGGED = RaggedRows({"words": ("words_1",), "tables": ("tables_1", "tables_2")})

Rows = list[tuple[list[int], list[list[int]]]]
rows = st.lists(
    st.tuples(st.lists(st.integers(0, 9), max_size=4), st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3)),
    max_size=5,
)


def splits(lengths: list[int]) -> Array:
    return np.cumsum([0, *lengths], dtype=np.int64)


def request(sent: Rows) -> dict[str, Array]:
    tables = [inner for _, table in sent for inner in table]
    return {
        "words": np.array([word for words, _ in sent for word in words], np.int32),
        "words_1": splits([len(words) for words, _ in sent]),
        "scale": np.arange(len(sent), dtype=np.float32),
        "tables": np.array([cell for inner in tables for cell in inner], np.float32),
        "tables_1": splits([len(table) for _, table in sent]),
        "tables_2": splits([len(inner) for inner in tables]),
    }


def read(inputs: Mapping[str, Array]) -> Rows:
    """What `request` was made from."""

    def cut(values: list[Any], ends: Array) -> list[list[Any]]:
        assert ends[-1] == len(values)
        return [values[start:end] for start, end in pairwise(ends)]

    words = cut(inputs["words"].tolist(), inputs["words_1"])
    tables = cut(cut(inputs["tables"].tolist(), inputs["tables_2"]), inputs["tables_1"])
    assert len(inputs["scale"]) == len(words)
    return list(zip(words, tables, strict=True))


@given(st.lists(rows, min_size=1, max_size=5), st.integers(0, 3))
def test_what_is_joined_are_everyones_rows_and_the_first_row_again(sent: list[Rows], more: int) -> None:
    everyone = [row for each in sent for row in each]
    own = len(everyone)
    padded = own + more if own else 0
    joined = RAGGED.join([request(each) for each in sent], own, padded)
    assert read(joined) == everyone + everyone[:1] * (padded - own)
    assert {name: array.dtype for name, array in joined.items()} == {
        name: array.dtype for name, array in request([]).items()
    }


@given(rows, st.data())
def test_a_part_is_a_request_of_its_own(sent: Rows, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(sent)))
    end = data.draw(st.integers(start, len(sent)))
    part = RAGGED.part(request(sent), start, end)
    assert read(part) == sent[start:end]
    assert part["scale"].tolist() == list(range(start, end))


SENT: Rows = [([1, 2, 3], [[1], [2, 3]]), ([], []), ([4], [[], [5]])]


@given(rows)
def test_rows_fit_if_they_are_as_many_as_is_said(sent: Rows) -> None:
    assert RAGGED.misfit(request(sent), len(sent)) == ""
    assert "not 6" in RAGGED.misfit(request(sent), 6)


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("words_1", [0, 3, 3, 5], "'words_1' are no row splits of 'words'"),  # beyond its values
        ("words_1", [0, 3, 3, 3], "'words_1' are no row splits of 'words'"),  # a value is nobody's
        ("words_1", [1, 3, 3, 4], "'words_1' are no row splits of 'words'"),
        ("words_1", [0, 4, 3, 4], "'words_1' are no row splits of 'words'"),
        ("words_1", [], "'words_1' are no row splits of 'words'"),
        ("words_1", [0, 3, 4], "'words' has 2 rows, not 3"),
        ("words_1", [0, 3, 3, 3, 4], "'words' has 4 rows, not 3"),
        ("tables_1", [0, 2, 2, 3], "'tables_1' are no row splits of 'tables_2'"),
        ("tables_1", [0, 2, 2, 5], "'tables_1' are no row splits of 'tables_2'"),
        ("tables_2", [0, 1, 3, 3, 5], "'tables_2' are no row splits of 'tables'"),
        ("tables_2", [0, 1, 3, 4], "'tables_1' are no row splits of 'tables_2'"),
        ("scale", [1, 2], "'scale' has 2 rows, not 3"),
        ("scale", 7, "'scale' has -1 rows, not 3"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(name: str, array: object, text: str) -> None:
    assert RAGGED.misfit({**request(SENT), name: np.array(array, np.int64)}, 3) == text


def test_the_splits_of_others_are_moved_behind_the_values_before_them() -> None:
    joined = RAGGED.join([request(SENT), request([]), request(SENT)], 6, 6)
    assert joined["words_1"].tolist() == [0, 3, 3, 4, 7, 7, 8]
    assert joined["tables_2"].tolist() == [0, 1, 3, 3, 4, 5, 7, 7, 8]
    assert joined["tables_1"].tolist() == [0, 2, 2, 4, 6, 6, 8]


def test_the_splits_of_one_request_are_its_own() -> None:
    sent = request(SENT)
    joined = RAGGED.join([sent], 3, 3)
    assert joined.keys() == sent.keys()
    assert all(joined[name] is sent[name] for name in sent)


def test_row_splits_keep_their_type() -> None:
    one = {"words": np.ones(2), "words_1": np.array([0, 2], np.int32)}
    assert RaggedRows({"words": ("words_1",)}).join([one, one], 2, 4)["words_1"].dtype == np.int32


def test_rows_of_different_lengths_share_a_call() -> None:
    calls = []

    def sums(inputs: Mapping[str, Array]) -> dict[str, Array]:
        calls.append(read(inputs))
        return {"sums": np.array([sum(words) for words, _ in calls[-1]])}

    sent: list[Rows] = [[([1, 2, 3], [])], [], [([4], [[5]]), ([], [])]]
    requests = [PendingRequest(request(each), len(each), FakeReply(), 0.0) for each in sent]
    found = execute(batch_function(sums, ragged=RAGGED), requests, lambda: 0.0).outcomes
    assert [each["sums"].tolist() for each in found if isinstance(each, dict)] == [[6], [], [4, 0]]
    assert len(calls) == 1
    assert len(calls[0]) == 4


def test_ragged_outputs_are_parted_by_request() -> None:
    def doubled(found: Mapping[str, Array]) -> dict[str, Array]:
        return {"doubles": found["words"] * 2, "ends": found["words_1"], "scale": found["scale"]}

    outputs = RaggedRows({"doubles": ("ends",)})
    sent: list[Rows] = [[([1, 2, 3], []), ([4], [])], [], [([], []), ([5, 6], [])]]
    requests = [PendingRequest(request(each), len(each), FakeReply(), 0.0) for each in sent]
    execution = execute(batch_function(doubled, ragged=RAGGED, ragged_outputs=outputs), requests, lambda: 0.0)
    found = [(each["doubles"].tolist(), each["ends"].tolist()) for each in execution.outcomes if isinstance(each, dict)]
    assert found == [([2, 4, 6, 8], [0, 3, 4]), ([], [0]), ([10, 12], [0, 0, 2])]
    assert execution.rejection is None


def test_ragged_outputs_that_are_not_the_rows_end_the_sharing() -> None:
    def less(found: Mapping[str, Array]) -> dict[str, Array]:
        return {"doubles": found["words"], "ends": found["words_1"][:-1]}

    outputs = RaggedRows({"doubles": ("ends",)})
    requests = [PendingRequest(request([([1], [])]), 1, FakeReply(), 0.0) for _ in range(2)]
    execution = execute(batch_function(less, ragged=RAGGED, ragged_outputs=outputs), requests, lambda: 0.0)
    assert str(execution.rejection) == "Output 'ends' are no row splits of 'doubles'"
