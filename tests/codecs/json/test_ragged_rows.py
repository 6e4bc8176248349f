"""Rows of a RaggedTensor as nested lists, and back. The oracle is TensorFlow's own RaggedTensor."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from app.batching.shapes.ragged import RaggedRows
from app.codecs.json.parsing import parse
from app.codecs.json.predict_documents import decode_predict, encode_predict
from app.core.errors import InvalidRequest, ServingError
from tests.support.protocol_fakes import signature_of, specs

ONE = replace(
    signature_of(
        specs(words=("string", (None,)), words_1=("int64", (None,))),
        specs(y=("string", (None,)), y_1=("int64", (None,))),
    ),
    ragged={"words": ("words_1",)},
    ragged_outputs={"y": ("y_1",)},
)
TWO = replace(
    signature_of(
        specs(
            t=("float32", (None,)), t_1=("int64", (None,)), t_2=("int64", (None,)), scale=("int32", (None,)),
            pairs=("float32", (None, 2)), pairs_1=("int32", (None,)),
        ),
        specs(y=("float32", (None,))),
    ),
    ragged={"t": ("t_1", "t_2"), "pairs": ("pairs_1",)},
)  # fmt: skip

#: Numbers whose shortest text as float32 is that as float64.
NUMBERS = st.integers(-999, 999).map(lambda eighths: eighths / 8)

TABLES = st.lists(st.lists(st.lists(NUMBERS)), min_size=1)


def tensors(document: dict[str, Any], signature: Any) -> dict[str, Any]:
    found, _ = decode_predict(parse(json.dumps(document).encode()), signature)
    for name, array in found.items():
        assert array.dtype == signature.inputs[name].dtype
    return {name: array.tolist() for name, array in found.items()}


def rejection(document: dict[str, Any], signature: Any = TWO) -> str:
    with pytest.raises(ServingError) as caught:
        tensors(document, signature)
    assert isinstance(caught.value, InvalidRequest)
    return str(caught.value)


@given(TABLES)
def test_two_levels_are_those_of_tensorflow_in_rows_and_in_columns(tables: list[list[list[float]]]) -> None:
    oracle = tf.ragged.constant(tables, tf.float32, 2)
    expected = {
        "t": oracle.flat_values.numpy().tolist(),
        "t_1": oracle.row_splits.numpy().tolist(),
        "t_2": oracle.values.row_splits.numpy().tolist(),
    }
    rows = [{"t": table, "scale": 1, "pairs": [[1.0, 2.0]]} for table in tables]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    others = {
        "scale": [1] * len(rows), "pairs": [[1.0, 2.0]] * len(rows), "pairs_1": list(range(len(rows) + 1)),
    }  # fmt: skip
    assert tensors({"instances": rows}, TWO) == expected | others
    assert tensors({"inputs": columns}, TWO) == expected | others


@given(TABLES)
def test_predictions_of_ragged_outputs_are_the_rows_again(tables: list[list[list[float]]]) -> None:
    oracle = tf.ragged.constant(tables, tf.float32, 2)
    outputs = {
        "y_1": oracle.row_splits.numpy(), "y": oracle.flat_values.numpy(), "y_2": oracle.values.row_splits.numpy(),
    }  # fmt: skip
    alone = encode_predict(outputs, True, ragged={"y": ("y_1", "y_2")})
    assert json.loads(alone) == {"predictions": tables}
    beside = outputs | {"n": np.arange(len(tables), dtype=np.int32)}
    for in_slices in (False, True):
        written = encode_predict(beside, True, ragged={"y": ("y_1", "y_2")}, in_slices=in_slices)
        rows = [{"y": table, "n": number} for number, table in enumerate(tables)]
        assert json.loads(written) == {"predictions": rows}


def test_strings_and_values_that_are_not_finite_are_written_as_in_other_outputs() -> None:
    splits = np.array([0, 1, 2])
    for values, text in (
        (np.array([np.nan, np.inf], np.float32), b"[[NaN],[Infinity]]"),
        (np.array([b"null", b"b"], object), b'[["null"],["b"]]'),
    ):
        written = encode_predict({"y": values, "y_1": splits}, True, ragged={"y": ("y_1",)})
        assert written == b'{"predictions":' + text + b"}"


def test_without_its_splits_values_are_an_output_as_any_other() -> None:
    assert encode_predict({"y": np.arange(3)}, True, ragged={"y": ("y_1",)}) == b'{"predictions":[0,1,2]}'
    assert json.loads(encode_predict({"y": np.arange(1), "y_1": np.arange(2)}, False, ragged={"y": ("y_1",)})) == {
        "outputs": {"y": [0], "y_1": [0, 1]}
    }, "columns are values and splits, as inputs may be"


@pytest.mark.parametrize(
    "document",
    [
        {"instances": [["a", "b"], [], ["c"]]},
        {"instances": [{"words": ["a", "b"]}, {"words": []}, {"words": ["c"]}]},
        {"inputs": [["a", "b"], [], ["c"]]},
        {"inputs": {"words": [["a", "b"], [], ["c"]]}},
        {"inputs": {"words": ["a", "b", "c"], "words_1": [0, 2, 2, 3]}},
        {"instances": [[{"b64": "YQ=="}, "b"], [], ["c"]]},
    ],
)
def test_the_only_input_needs_no_name_and_splits_may_be_given(document: dict[str, Any]) -> None:
    assert tensors(document, ONE) == {"words": [b"a", b"b", b"c"], "words_1": [0, 2, 2, 3]}


def test_no_rows_and_rows_without_values() -> None:
    assert tensors({"inputs": {"words": []}}, ONE) == {"words": [], "words_1": [0]}
    empty = tensors({"inputs": {"t": [[]], "pairs": [[]], "scale": [1]}}, TWO)
    assert (empty["t_1"], empty["t_2"], empty["pairs"], empty["pairs_1"]) == ([0, 0], [0], [], [0, 0])


def test_long_rows_are_read_as_short_ones() -> None:
    """Arrays of more than 8 KB are read by another parser."""
    pairs = [[float(number), 2.0] for number in range(3000)]
    short = {"t": [[1.0]], "scale": 1}
    found = tensors({"instances": [{"pairs": pairs, **short}, {"pairs": pairs[:7], **short}]}, TWO)
    assert (found["pairs"], found["pairs_1"]) == ([*pairs, *pairs[:7]], [0, 3000, 3007])
    found = tensors({"inputs": {"t": [[[1.0]]] * 2, "scale": [1, 2], "pairs": [pairs, pairs]}}, TWO)
    assert (found["pairs"], found["pairs_1"]) == ([*pairs, *pairs], [0, 3000, 6000])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"t": 1.0},
            "Input 't': row 1 has 1.0 at depth 1; expected lists nested at least 2 deep in each row, or values ",
        ),
        ({"t": [[1.0], 2.0]}, "Input 't': row 1 has 2.0 at depth 2; expected lists nested at least 2 deep"),
        ({"t": None}, "Input 't': row 1 has null at depth 1"),
        ({"t": [[1.0], ["a"]]}, "Input 't': row 1: JSON Value: \"a\" Type: String is not of expected type: float"),
        ({"pairs": [[1.0, 2.0], [3.0]]}, "Input 'pairs': row 1: Encountered list at unexpected size: 1"),
        ({"pairs": [[3.0]]}, "Input 'pairs': row 1 has values of shape [1]; expected [2], as in the rows before it"),
        ({"t_1": [0, 1]}, "keys must be equal to: pairs,scale,t"),
    ],
)
def test_what_does_not_fit_is_told_with_its_input_and_row(change: dict[str, Any], text: str) -> None:
    good = {"t": [[1.0], []], "scale": 1, "pairs": [[1.0, 2.0]]}
    assert text in rejection({"instances": [good, good | change]})
    if "t_1" not in change:
        rows = [good, good | change]
        assert text in rejection({"inputs": {name: [row[name] for row in rows] for name in good}})


def test_splits_are_given_all_or_none() -> None:
    columns = {"t": [1.0], "t_1": [0, 1], "pairs": [[]], "scale": [1]}
    assert rejection({"inputs": columns}) == "Missing named input: t_2 in 'inputs' object."
    assert rejection({"inputs": {"words_1": [0, 1]}}, ONE) == "Missing named input: words in 'inputs' object."
    assert rejection({"inputs": {"words": "a"}}, ONE) == "Input 'words': expected a list of rows, but got: \"a\""


@given(st.lists(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2)), min_size=1))
def test_what_is_read_are_rows_that_may_share_a_call(pairs: list[list[list[int]]]) -> None:
    found, _ = decode_predict({"inputs": {"t": [[]] * len(pairs), "scale": [0] * len(pairs), "pairs": pairs}}, TWO)
    assert not RaggedRows(TWO.ragged).misfit(found, len(pairs))
    assert found["pairs"].tolist() == list(chain.from_iterable(pairs)) or not found["pairs"].size
