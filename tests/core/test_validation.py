from dataclasses import replace

import numpy as np
import pytest

from app.core.errors import InvalidRequest, SignatureNotFound
from app.core.inference import STRING, Array, ModelSignature, SparseParts, TensorSpec
from app.core.validation import check_inputs, check_outputs, check_sparse, count_rows, find_signature, shapes_fit
from tests.support.fakes import FakeLoadedModel

FLOAT = np.dtype(np.float32)
SIGNATURE = ModelSignature(
    "serving_default",
    {"x": TensorSpec("x", FLOAT, (None, 2)), "s": TensorSpec("s", STRING, None)},
    {"y": TensorSpec("y", FLOAT, (None,))},
)


def x(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


GOOD = {"x": x(3, 2), "s": np.array([b"a"], object)}


def test_what_fits_passes() -> None:
    check_inputs(SIGNATURE, GOOD)
    check_outputs(SIGNATURE, ("y",))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "Inputs do not match signature 'serving_default': missing 's', 'x'; expected 's', 'x'"),
        ({**GOOD, "z": x(1)}, "unknown 'z'; expected 's', 'x'"),
        ({"x": x(3, 2), "t": x(1)}, "missing 's'; unknown 't'"),
        ({**GOOD, "x": np.zeros((3, 2), np.float64)}, "Input 'x' has dtype float64; expected float32[?,2]"),
        ({**GOOD, "s": x(1)}, "Input 's' has dtype float32; expected string<unknown rank>"),
        ({**GOOD, "x": x(3, 3)}, "Input 'x' has shape [3,3]; expected [?,2]"),
        ({**GOOD, "x": x(2)}, "Input 'x' has shape [2]; expected [?,2]"),
    ],
)
def test_what_does_not_fit_is_named(inputs: dict[str, Array], text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_inputs(SIGNATURE, inputs)
    assert text in str(caught.value)


def test_an_unknown_output_is_named() -> None:
    with pytest.raises(InvalidRequest, match="has no output 'w'; it has 'y'"):
        check_outputs(SIGNATURE, ("y", "w"))


INT64 = np.dtype(np.int64)
SPARSE = ModelSignature(
    "f",
    {
        "x": TensorSpec("x", INT64, (None, 2)),
        "x_1": TensorSpec("x_1", FLOAT, (None,)),
        "x_2": TensorSpec("x_2", INT64, (2,)),
    },
    {},
    sparse=(SparseParts("x", "x_1", "x_2"),),
)


def sparse(indices: list[list[int]], values: int, *shape: int) -> dict[str, Array]:
    return {
        "x": np.array(indices, np.int64).reshape(-1, 2),
        "x_1": np.ones(values, np.float32),
        "x_2": np.array(shape, np.int64),
    }


@pytest.mark.parametrize(
    "inputs",
    [
        sparse([[0, 0], [1, 4]], 2, 2, 5),
        sparse([], 0, 0, 5),
        sparse([], 0, 65_536, 1 << 40),
        sparse([[0, 0]], 1, 65_568, 1),
    ],
)
def test_parts_of_a_sparse_tensor_that_fit_pass(inputs: dict[str, Array]) -> None:
    check_sparse(SPARSE, inputs)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (sparse([[0, 0]], 2, 2, 5), r"'x', 'x_1', 'x_2' are a SparseTensor; expected .* got \[1,2\], \[2\], \[2\]"),
        (sparse([[0, 0]], 1, 2, 5, 1), "are a SparseTensor"),
        ({**sparse([[0, 0]], 1, 2, 5), "x": np.zeros(2, np.int64)}, "are a SparseTensor"),
        (sparse([[2, 0]], 1, 2, 5), "Input 'x' has indices outside of the shape in 'x_2'"),
        (sparse([[-1, 0]], 1, 2, 5), "outside of the shape"),
        (sparse([], 0, 2, -5), "outside of the shape"),
        (sparse([], 0, 65_537, 1), "Input 'x_2' has 65537 rows; expected 65536 at most with 0 values"),
        (sparse([[0, 0]], 1, 1 << 33, 1), "expected 65568 at most with 1 values"),
    ],
)
def test_parts_of_a_sparse_tensor_that_do_not_fit_are_named(inputs: dict[str, Array], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_sparse(SPARSE, inputs)


def test_rows_of_a_sparse_tensor_are_the_first_size_of_its_shape() -> None:
    assert count_rows(SPARSE, sparse([[0, 0], [0, 1]], 2, 7, 5)) == 7
    beside = replace(SPARSE, inputs={**SPARSE.inputs, "scale": TensorSpec("scale", FLOAT, (None,))})
    assert count_rows(beside, {**sparse([], 0, 7, 5), "scale": x(7)}) == 7
    with pytest.raises(InvalidRequest, match="equally many rows; 'x' has 7, 'scale' has 2"):
        count_rows(beside, {**sparse([], 0, 7, 5), "scale": x(2)})


def test_inputs_must_have_equally_many_rows() -> None:
    assert count_rows(SIGNATURE, {"x": x(3, 2)}) == 3
    with pytest.raises(InvalidRequest, match="'x' has 3, 's' has 1"):
        count_rows(SIGNATURE, GOOD)


@pytest.mark.parametrize(
    ("signature", "shapes", "fit"),
    [
        ("serving_default", [(0, 2)], True),
        ("serving_default", [(1, 3)], False),
        ("serving_default", [()], False),
        ("total", [()], True),
        ("total", [(1,)], False),
        ("uneven", [(4, 2)], True),
        ("pair", [(2, 2), (2, 2)], True),
        ("pair", [(2, 2), (3, 2)], False),
    ],
)
def test_shapes_fit_or_not(signature: str, shapes: list[tuple[int, ...]], fit: bool) -> None:
    found = FakeLoadedModel().signatures[signature]
    inputs = {name: np.zeros(shape, np.float32) for name, shape in zip(found.inputs, shapes, strict=True)}
    assert shapes_fit(found, inputs) is fit


LONG = np.dtype(np.int64)
RAGGED = ModelSignature(
    "ragged",
    {
        "words": TensorSpec("words", FLOAT, (None,)),
        "words_1": TensorSpec("words_1", LONG, (None,)),
        "words_2": TensorSpec("words_2", LONG, (None,)),
        "scale": TensorSpec("scale", FLOAT, (None,)),
    },
    {"y": TensorSpec("y", FLOAT, (None,))},
    ragged={"words": ("words_1", "words_2")},
)


def tables(outer: list[int], inner: list[int], values: int, rows: int) -> dict[str, Array]:
    return {"words": x(values), "words_1": np.array(outer, LONG), "words_2": np.array(inner, LONG), "scale": x(rows)}


@pytest.mark.parametrize(
    ("outer", "inner", "values", "rows"),
    [([0, 2, 2, 3], [0, 1, 3, 4], 4, 3), ([0], [0], 0, 0), ([0, 0], [0], 0, 1), ([0, 1, 2], [0, 0, 5], 5, 2)],
)
def test_ragged_rows_are_counted_by_their_outermost_splits(
    outer: list[int], inner: list[int], values: int, rows: int
) -> None:
    assert count_rows(RAGGED, tables(outer, inner, values, rows)) == rows
    with pytest.raises(InvalidRequest, match=f"'words' has {rows}, 'scale' has {rows + 1}"):
        count_rows(RAGGED, tables(outer, inner, values, rows + 1))


@pytest.mark.parametrize(
    ("outer", "inner", "text"),
    [
        ([], [0, 1, 3, 4], "'words_1' must be row splits of 'words_2': ascending from 0 to 3"),
        ([1, 2, 2, 3], [0, 1, 3, 4], "'words_1' must be row splits of 'words_2': ascending from 0 to 3"),
        ([0, 2, 2, 4], [0, 1, 3, 4], "'words_1' must be row splits of 'words_2': ascending from 0 to 3"),
        ([0, 2, 2, 2], [0, 1, 3, 4], "'words_1' must be row splits of 'words_2': ascending from 0 to 3"),
        ([0, 3, 2, 3], [0, 1, 3, 4], "'words_1' must be row splits of 'words_2': ascending from 0 to 3"),
        ([0, 4, 2, 3], [0, 1, 3, 4], "'words_1' must be row splits of 'words_2': ascending from 0 to 3"),
        ([0, 2, 2, 3], [], "'words_1' must be row splits of 'words_2': ascending from 0 to -1"),
        ([0, 2, 2, 3], [0, 1, 3, 5], "'words_2' must be row splits of 'words': ascending from 0 to 4"),
        ([0, 2, 2, 3], [0, 1, 3, 3], "'words_2' must be row splits of 'words': ascending from 0 to 4"),
        ([0, 2, 2, 3], [1, 1, 3, 4], "'words_2' must be row splits of 'words': ascending from 0 to 4"),
        ([0, 2, 2, 3], [0, 4, 3, 4], "'words_2' must be row splits of 'words': ascending from 0 to 4"),
    ],
)
def test_row_splits_that_would_take_rows_of_others_are_rejected(outer: list[int], inner: list[int], text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        count_rows(RAGGED, tables(outer, inner, 4, 3))
    assert text in str(caught.value)


def test_a_signature_that_is_not_batchable_has_no_rows_to_compare() -> None:
    total = ModelSignature("total", {**SIGNATURE.inputs, "k": TensorSpec("k", FLOAT, ())}, SIGNATURE.outputs)
    assert shapes_fit(total, {**GOOD, "k": np.zeros((), np.float32)})
    both = ModelSignature("both", SIGNATURE.inputs, SIGNATURE.outputs)
    assert not both.batchable
    assert shapes_fit(both, GOOD)


def test_a_signature_without_outputs_or_inputs_says_so() -> None:
    nothing = ModelSignature("nothing", {}, {})
    with pytest.raises(InvalidRequest, match="has no output 'y'; it has none"):
        check_outputs(nothing, ("y",))
    with pytest.raises(InvalidRequest, match="unknown 'x'; expected none"):
        check_inputs(nothing, {"x": x(1)})


def test_a_signature_is_found_by_its_name() -> None:
    assert find_signature({"s": SIGNATURE}, "s") is SIGNATURE
    with pytest.raises(SignatureNotFound, match='"t" not found'):
        find_signature({"s": SIGNATURE}, "t")
