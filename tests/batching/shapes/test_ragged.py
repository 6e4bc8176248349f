from itertools import pairwise

import numpy as np
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


def read(inputs: dict[str, Array]) -> Rows:
    """What `request` was made from."""

    def cut(values: list[object], ends: Array) -> list[list[object]]:
        assert ends[-1] == len(values)
        return [values[start:end] for start, end in pairwise(ends)]

    words = cut(inputs["words"].tolist(), inputs["words_1"])
    tables = cut(cut(inputs["tables"].tolist(), inputs["tables_2"]), inputs["tables_1"])  # type: ignore[arg-type]
    assert len(inputs["scale"]) == len(words)
    return list(zip(words, tables, strict=True))  # type: ignore[arg-type]


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


def test_row_splits_keep_their_type() -> None:
    one = {"words": np.ones(2), "words_1": np.array([0, 2], np.int32)}
    assert RaggedRows({"words": ("words_1",)}).join([one, one], 2, 4)["words_1"].dtype == np.int32


def test_rows_of_different_lengths_share_a_call() -> None:
    calls = []

    def sums(inputs: object) -> dict[str, Array]:
        calls.append(read(inputs))  # type: ignore[arg-type]
        return {"sums": np.array([sum(words) for words, _ in calls[-1]])}

    sent: list[Rows] = [[([1, 2, 3], [])], [], [([4], [[5]]), ([], [])]]
    requests = [PendingRequest(request(each), len(each), FakeReply(), 0.0) for each in sent]
    found = execute(batch_function(sums, ragged=RAGGED), requests, lambda: 0.0).outcomes
    assert [each["sums"].tolist() for each in found if isinstance(each, dict)] == [[6], [], [4, 0]]
    assert len(calls) == 1
    assert len(calls[0]) == 4
