from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.batch import execute
from app.batching.request import PendingRequest
from app.batching.shapes.ragged import RaggedRows
from app.batching.shapes.sparse import (
    FREE_ROWS,
    MOST_CELLS,
    MOST_ROWS,
    SparseRows,
    composite_rows,
    in_order,
    sizes_to_share,
)
from app.core.inference import Array, ModelSignature, SparseParts, TensorSpec
from tests.support.fakes import FakeReply, batch_function

X, IDS = SparseParts("x", "x_1", "x_2"), SparseParts("ids", "ids_1", "ids_2")

#: A matrix and a cube that are sparse, a ragged input, and one number for each row.
SPARSE = SparseRows({"words": ("words_1",)}, (X, IDS))

WIDTH, CUBE = 4, (2, 3)

#: Of each row: the matrix's columns with values, the cube's places, the words, the number.
Rows = list[tuple[dict[int, float], dict[tuple[int, int], int], list[int], float]]
rows = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, WIDTH - 1), st.integers(1, 9).map(float), max_size=3),
        st.dictionaries(st.tuples(st.integers(0, 1), st.integers(0, 2)), st.integers(1, 9), max_size=3),
        st.lists(st.integers(0, 9), max_size=3),
        st.integers(0, 99).map(float),
    ),
    min_size=1,
    max_size=5,
)


def parts(
    names: SparseParts, sent: Sequence[Mapping[Any, Any]], sizes: tuple[int, ...], dtype: Any
) -> dict[str, Array]:
    entries = [((row, *np.atleast_1d(place)), each[place]) for row, each in enumerate(sent) for place in sorted(each)]
    indices = np.array([place for place, _ in entries], np.int64).reshape(-1, 1 + len(sizes))
    values = np.array([value for _, value in entries], dtype)
    return {names.indices: indices, names.values: values, names.shape: np.array([len(sent), *sizes])}


def request(sent: Rows) -> dict[str, Array]:
    return {
        **parts(X, [row[0] for row in sent], (WIDTH,), np.float32),
        **parts(IDS, [row[1] for row in sent], CUBE, np.int64),
        "words": np.array([word for row in sent for word in row[2]], np.int32),
        "words_1": np.cumsum([0, *[len(row[2]) for row in sent]]),
        "scale": np.array([row[3] for row in sent], np.float32),
    }


def read(inputs: Mapping[str, Array]) -> Rows:
    """What `request` was made from."""
    count = len(inputs["scale"])
    assert inputs["x_2"].tolist() == [count, WIDTH]
    assert inputs["ids_2"].tolist() == [count, *CUBE]
    found: Rows = [({}, {}, [], float(scale)) for scale in inputs["scale"]]
    for (row, column), value in zip(inputs["x"].tolist(), inputs["x_1"].tolist(), strict=True):
        found[row][0][column] = value
    for (row, *place), value in zip(inputs["ids"].tolist(), inputs["ids_1"].tolist(), strict=True):
        found[row][1][place[0], place[1]] = value
    for row, (start, end) in enumerate(zip(inputs["words_1"], inputs["words_1"][1:], strict=False)):
        found[row][2].extend(inputs["words"][start:end].tolist())
    return found


@given(st.lists(rows, min_size=1, max_size=5))
def test_what_is_joined_are_everyones_rows(sent: list[Rows]) -> None:
    everyone = [row for each in sent for row in each]
    joined = SPARSE.join([request(each) for each in sent], len(everyone), len(everyone))
    assert read(joined) == everyone
    assert in_order(joined["x"])
    assert in_order(joined["ids"])
    assert not SPARSE.misfit(joined, len(everyone))
    assert SPARSE.count(joined) == len(everyone)


@pytest.mark.parametrize(("shape", "told"), [([3, WIDTH], "[3]"), ([], "[]")])
def test_tensors_of_another_number_of_rows_do_not_fit(shape: list[int], told: str) -> None:
    sent = request([({0: 1.0}, {}, [1], 2.0), ({}, {}, [], 3.0)])
    assert not SPARSE.misfit(sent, 2)
    assert SPARSE.misfit(sent | {X.shape: np.array(shape, np.int64)}, 2) == f"'x_2' says {told} rows, not 2"


@given(st.lists(rows, min_size=1, max_size=4), st.integers(1, 4))
def test_padding_repeats_one_of_the_rows_with_no_more_entries_than_the_mean(sent: list[Rows], more: int) -> None:
    everyone = [row for each in sent for row in each]
    own = len(everyone)
    *found, padding = read(SPARSE.join([request(each) for each in sent], own, own + more))
    assert found[:own] == everyone
    assert padding in everyone
    assert found[own:] == [padding] * (more - 1)
    mean = sum(len(row[0]) + len(row[1]) for row in everyone) / own
    assert len(padding[0]) + len(padding[1]) <= mean


@given(rows, st.data())
def test_a_part_has_its_own_rows_numbered_from_the_first(sent: Rows, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(sent)))
    end = data.draw(st.integers(start, len(sent)))
    assert read(SPARSE.part(request(sent), start, end)) == sent[start:end]


@given(rows)
def test_parts_that_are_joined_are_the_whole(sent: Rows) -> None:
    whole, middle = request(sent), len(sent) // 2
    halves = [SPARSE.part(whole, 0, middle), SPARSE.part(whole, middle, len(sent))]
    joined = SPARSE.join(halves, len(sent), len(sent))
    for name, array in whole.items():
        np.testing.assert_array_equal(joined[name], array)


def test_joining_changes_no_request() -> None:
    sent = [request([({1: 2.0}, {}, [1], 3.0)]) for _ in range(3)]
    SPARSE.join(sent, 3, 4)
    assert [each["x"].tolist() for each in sent] == [[[0, 1]]] * 3
    assert [each["x_2"].tolist() for each in sent] == [[1, WIDTH]] * 3


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=6))
def test_lines_are_in_order_as_tuples_are(lines: list[tuple[int, int, int]]) -> None:
    ascend = all(one < other for one, other in pairwise(lines))
    assert in_order(np.array(lines, np.int64).reshape(-1, 3)) == ascend


def test_each_caller_gets_the_answer_to_its_own_rows() -> None:
    """Sums of each row of the matrix."""
    calls = []

    def model(inputs: Mapping[str, Array]) -> dict[str, Array]:
        calls.append(int(inputs["x_2"][0]))
        return {"sum": np.bincount(inputs["x"][:, 0], inputs["x_1"], minlength=inputs["x_2"][0])}

    numbers = SparseRows({}, (X,))
    sent = [[{0: 1.0}], [{}, {1: 2.0, 3: 4.0}], [{2: 8.0}, {}]]
    pending = [PendingRequest(parts(X, each, (WIDTH,), np.float32), len(each), FakeReply(), 0.0) for each in sent]
    execution = execute(batch_function(model, 8, ragged=numbers), pending, lambda: 0.0)
    assert calls == [8]
    assert [outcome["sum"].tolist() for outcome in execution.outcomes] == [[1.0], [0.0, 6.0], [8.0, 0.0]]


# --- who shares calls ---


def signature(*sizes: int | None, **more: Any) -> ModelSignature:
    specs = {
        "x": TensorSpec("x", np.dtype(np.int64), (None, 1 + len(sizes))),
        "x_1": TensorSpec("x_1", np.dtype(np.float32), (None,)),
        "x_2": TensorSpec("x_2", np.dtype(np.int64), (1 + len(sizes),)),
        **{name: TensorSpec(name, np.dtype(np.float32), (None,)) for name in more},
    }
    output = {"y": TensorSpec("y", np.dtype(np.float32), (None,))}
    return ModelSignature("f", specs, output, sparse=(X,), sparse_sizes={"x": sizes})


def sent(*places: tuple[int, ...], shape: tuple[int, ...] = (2, 4)) -> dict[str, Array]:
    indices = np.array(places, np.int64).reshape(-1, len(shape))
    return {"x": indices, "x_1": np.ones(len(indices), np.float32), "x_2": np.array(shape)}


@pytest.mark.parametrize("places", [[], [(0, 0)], [(0, 1), (0, 3), (1, 0)], [(1, 2)]])
def test_requests_in_order_share_calls_with_those_of_equal_sizes(places: list[tuple[int, int]]) -> None:
    assert sizes_to_share(signature(None), sent(*places)) == (("x", 4),)
    assert sizes_to_share(signature(4), sent(*places)) == (("x", 4),)
    assert sizes_to_share(signature(None), sent(*places, shape=(2, 5))) == (("x", 5),)


@pytest.mark.parametrize(
    ("why", "request_"),
    [
        ("rows are not in order", sent((1, 0), (0, 0))),
        ("columns are not in order", sent((0, 2), (0, 1))),
        ("a place is there twice", sent((0, 1), (0, 1))),
        ("there are no rows", sent(shape=(0, 4))),
        ("too many rows cost their sender nothing", sent((0, 0), shape=(FREE_ROWS + 6, 4))),
        ("there are too many rows", sent(*[(row, 0) for row in range(MOST_ROWS)], shape=(MOST_ROWS + 1, 4))),
        ("a row may be too large", sent(shape=(1, MOST_CELLS + 1))),
    ],
)
def test_all_others_run_alone(why: str, request_: dict[str, Array]) -> None:
    assert sizes_to_share(signature(None), request_) is None, why


def test_rows_without_entries_share_calls_as_far_as_there_are_few() -> None:
    assert sizes_to_share(signature(None), sent((0, 0), shape=(FREE_ROWS + 5, 4))) == (("x", 4),)


def test_requests_of_another_size_than_the_declared_one_run_alone() -> None:
    assert sizes_to_share(signature(5), sent((0, 1))) is None


def test_rows_of_a_declared_size_may_be_large() -> None:
    wide = sent((0, 1), shape=(1, 2**24))
    assert sizes_to_share(signature(2**24), wide) == (("x", 2**24),)
    assert sizes_to_share(signature(2**24, None), sent(shape=(1, 2**24, 1))) is None


def test_requests_whose_inputs_have_unequal_rows_run_alone() -> None:
    beside = signature(None, scale=())
    assert sizes_to_share(beside, {**sent(), "scale": np.ones(2, np.float32)}) == (("x", 4),)
    assert sizes_to_share(beside, {**sent(), "scale": np.ones(3, np.float32)}) is None


def test_rows_of_a_signature_are_cut_by_what_it_has() -> None:
    assert composite_rows(signature(None)) == SparseRows({}, (X,))
    ragged = ModelSignature("f", {}, {}, ragged={"words": ("words_1",)})
    assert composite_rows(ragged) == RaggedRows({"words": ("words_1",)})
    assert composite_rows(ModelSignature("f", {}, {})) is None
