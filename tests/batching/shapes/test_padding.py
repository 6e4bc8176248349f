import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.shapes.buckets import ShapeBuckets
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.size_rules import followed_size

TOKENS = ShapePadding(
    {"tokens": ("a",), "mask": ("a",), "image": ("b", "c", 3), "k": ()},
    {"each": ("a", 2), "all": (4,)},
    {"tokens": 9, "mask": 0, "image": 0.5, "k": 0},
)


def inputs(length: int, high: int = 1, wide: int = 1, rows: int = 1) -> dict[str, np.ndarray]:
    return {
        "tokens": np.full((rows, length), length, np.int32),
        "mask": np.ones((rows, length), bool),
        "image": np.full((rows, high, wide, 3), high, np.float32),
        "k": np.zeros(rows, np.int64),
    }


def joined(padding: ShapePadding, requests: list[dict[str, np.ndarray]], rows: int) -> dict[str, np.ndarray]:
    return padding.join(requests, rows, padding.call_shape(requests, rows))


def test_dimensions_of_one_name_that_differ_are_not_padded() -> None:
    uneven = inputs(5) | {"mask": np.ones((1, 4), bool)}
    assert TOKENS.bucket(uneven) is None


def test_a_bucket_is_the_shape_of_its_largest() -> None:
    assert TOKENS.bucket(inputs(9, 30, 41)) == ((10,), (10,), (32, 48, 3), ())
    assert TOKENS.bucket(inputs(9, 29, 41)) == TOKENS.bucket(inputs(10, 32, 48))


def test_what_is_longer_than_what_was_proven_is_not_padded() -> None:
    padding = ShapePadding({"x": ("a", "b")}, {"y": ("a",)}, {"x": 0}, proven={"a": 9, "b": 30})
    assert padding.bucket({"x": np.zeros((1, 9, 30))}) == ((10, 32),)
    assert padding.bucket({"x": np.zeros((1, 10, 1))}) is padding.bucket({"x": np.zeros((1, 1, 31))}) is None


def test_empty_rows_are_not_padded() -> None:
    """Alone a maximum over nothing is -inf; padded it is that of the padding."""
    for empty in (inputs(0), inputs(5, 0, 3), inputs(0, 0, 0)):
        assert TOKENS.bucket(empty) is None


def test_cells_are_the_elements_of_a_row_whose_number_is_free() -> None:
    assert TOKENS.cells(((10,), (10,), (4, 5, 3), ())) == 80
    assert ShapePadding({"x": ("a",), "k": (7,)}, {}, {}).cells(((0,), (7,))) == 1


def test_what_is_not_enabled_any_more_pads_nothing() -> None:
    padding = ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0}, enabled=False)
    assert padding.bucket({"x": np.zeros((1, 3))}) is None


def test_requests_are_padded_to_the_longest_with_the_value_of_the_input() -> None:
    found = joined(TOKENS, [inputs(1, 2, 1), inputs(3, 1, 2, rows=2)], 4)
    assert found["tokens"].tolist() == [[1, 9, 9], [3, 3, 3], [3, 3, 3], [1, 9, 9]]  # the last row is nobody's
    assert found["mask"].tolist() == [[True, False, False], [True] * 3, [True] * 3, [True, False, False]]
    assert found["image"][0, ..., 0].tolist() == [[2, 0.5], [2, 0.5]]
    assert found["image"].shape == (4, 2, 2, 3)
    assert found["k"].shape == (4,)
    assert {name: array.dtype for name, array in found.items()} == {
        name: array.dtype for name, array in inputs(1).items()
    }


def test_strings_are_padded() -> None:
    padding = ShapePadding({"words": ("a",)}, {}, {"words": b""})
    words = [{"words": np.array([[b"a"]], object)}, {"words": np.array([[b"b", b"cd"]], object)}]
    assert joined(padding, words, 2)["words"].tolist() == [[b"a", b""], [b"b", b"cd"]]


def test_outputs_are_cut_where_they_follow_and_lie_in_one_piece() -> None:
    outputs = {"each": np.arange(12).reshape(1, 6, 2), "all": np.arange(4).reshape(1, 4)}
    cut = TOKENS.cut(outputs, inputs(2))
    assert cut["each"].tolist() == [[[0, 1], [2, 3]]]
    assert cut["each"].flags.c_contiguous
    assert cut["all"] is outputs["all"]


@pytest.mark.parametrize("shape", [(1, 5, 2), (1, 6), (1, 6, 2, 1)])
def test_an_output_of_another_shape_than_expected_is_noticed(shape: tuple[int, ...]) -> None:
    assert TOKENS.misfit({"each": np.zeros((1, 6, 2)), "all": np.zeros((1, 4))}, inputs(6)) == ""
    assert TOKENS.misfit({"each": np.zeros(shape)}, inputs(6)) == f"output 'each' has shape {shape}, not (1, 6, 2)"


def test_it_can_be_read() -> None:
    assert str(TOKENS) == "tokens[?,a], mask[?,a], image[?,b,c,3], k[?] -> each[?,a,2], all[?,4]"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=6),
    st.integers(0, 4),
)
def test_what_is_joined_and_cut_is_what_each_sent(requests: list[tuple[int, int, int]], more: int) -> None:
    padding = ShapePadding({"x": ("a", "b")}, {"x": ("a", "b")}, {"x": -1}, ShapeBuckets((8,)))
    sent = [{"x": np.full((rows, a, b), number)} for number, (rows, a, b) in enumerate(requests)]
    rows = sum(rows for rows, _, _ in requests)
    together = joined(padding, sent, rows + (more if rows else 0))
    start = 0
    for each in sent:
        end = start + len(each["x"])
        np.testing.assert_array_equal(padding.cut({"x": together["x"][start:end]}, each)["x"], each["x"])
        start = end
    assert {np.shape(together["x"])[1:]} == {(max(a for _, a, _ in requests), max(b for _, _, b in requests))}


def test_shapes_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.batching.shapes.padding._MAX_SHAPES", 2)
    padding = ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0})
    assert [padding.cells(((size,),)) for size in (1, 2, 3, 1)] == [1, 2, 3, 1]
    assert len(padding._cells) <= 2


def halved(size: int) -> int:
    return -(-size // 2)


def test_outputs_follow_by_their_rule_and_requests_too_short_for_it_are_not_padded() -> None:
    rule = followed_size("n", 5, [halved(size) for size in range(5, 30)])
    assert rule is not None
    padding = ShapePadding({"x": ("n",)}, {"y": (rule, 3), "z": ("n",)}, {"x": 0}, ShapeBuckets((16,)))
    assert list(padding.rules) == [rule]
    assert [padding.bucket({"x": np.zeros((1, size))}) for size in (4, 5, 6)] == [None, ((16,),), ((16,),)]
    call = {"x": np.zeros((2, 11))}
    outputs = {"y": np.arange(2 * 6 * 3).reshape(2, 6, 3), "z": np.zeros((2, 11))}
    assert padding.misfit(outputs, call) == ""
    assert padding.misfit({"y": np.zeros((2, 5, 3))}, call) == "output 'y' has shape (2, 5, 3), not (2, 6, 3)"
    for size in (5, 8, 11):
        cut = padding.cut(outputs, {"x": np.zeros((2, size))})
        assert cut["y"].tolist() == outputs["y"][:, : halved(size)].tolist()
        assert cut["z"].shape == (2, size)


def test_calls_are_padded_to_what_was_compiled_for_their_bucket_and_rows() -> None:
    compiled = frozenset({(4, ((16,),)), (1, ((16,),)), (1, ((32,),))})
    padding = ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0}, ShapeBuckets((16, 32)), compiled=compiled)

    def called(rows: int, *lengths: int) -> int:
        ((length,),) = padding.call_shape([{"x": np.zeros((1, length))} for length in lengths], rows)
        return length

    assert [called(4, 3, 9), called(1, 3), called(1, 16), called(1, 20)] == [16, 16, 16, 32]
    assert [called(2, 3, 9), called(4, 20, 9), called(1, 40)] == [9, 20, 40]
    assert str(padding) == "x[?,n] -> y[?,n]; compiled for 16 (1, 4 rows), 32 (1 rows)"
    padding.enabled = False
    assert [called(4, 3, 9), called(1, 3)] == [9, 3]


def test_the_free_dimensions_have_names() -> None:
    assert TOKENS.dimensions == {"a", "b", "c"}
