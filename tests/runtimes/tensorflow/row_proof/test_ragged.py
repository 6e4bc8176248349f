"""Ragged tensors in the proof of rows, made by TensorFlow's own functions, beside real calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from app.core.graph_rows import OutputRows
from app.runtimes.tensorflow.execution.operations import drawing_operations, operations_with_state, writing_operations
from app.runtimes.tensorflow.row_proof.abstract_values import Count, Rows, Splits, Taint, entries_of
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, symbol
from app.runtimes.tensorflow.row_proof.ragged_outputs import ragged_verdicts
from tests.runtimes.tensorflow.row_proof.proving import differing, proof_of, prove, spec, traced, verdicts

_TEXT = spec(None, dtype=tf.string)


def _characters(text: Any) -> Any:
    return tf.strings.unicode_split(text, "UTF-8")


def _lower(text: Any) -> Any:
    return _characters(tf.strings.lower(text))


def _beside_itself(words: Any) -> Any:
    return tf.concat([words, words, words], 1).to_tensor(shape=[None, 7])


def _mark(text: Any) -> Any:
    return tf.fill([tf.shape(text)[0], 1], "|")


def _words_of_characters(text: Any) -> Any:
    """Rows of words of characters, by row splits alone."""
    words = tf.strings.split(text)
    words = tf.RaggedTensor.from_row_splits(words.values, words.row_splits, validate=False)
    return words.with_values(_characters(words.values))


_PROVEN: dict[str, Callable[[Any], Any]] = {
    "padded": lambda t: _characters(t).to_tensor(shape=[None, 4]),
    "padded_by_numbers": lambda t: tf.strings.split(t).to_tensor(shape=[None, 2], default_value="x"),
    "lengths": lambda t: _characters(t).row_lengths(),
    "counted": lambda t: tf.gather(tf.range(20) * 2, tf.minimum(_characters(t).row_lengths(), 9)),
    "code_points": lambda t: tf.strings.unicode_decode(t, "UTF-8").to_tensor(shape=[None, 3]) * 2,
    "and_back": lambda t: tf.strings.unicode_encode(tf.strings.unicode_decode(t, "UTF-8"), "UTF-8"),
    "hashed": lambda t: tf.strings.to_hash_bucket_fast(_characters(t), 9).to_tensor(shape=[None, 5]),
    "side_by_side": lambda t: tf.concat([_characters(t), _lower(t)], 1).to_tensor(shape=[None, 5]),
    "with_marks": lambda t: tf.concat([_mark(t), _characters(t), _mark(t), _lower(t), _mark(t)], 1).to_tensor(
        shape=[None, 9]
    ),
    "beside_itself": lambda t: _beside_itself(_characters(t)),
    "ngrams": lambda t: tf.strings.ngrams(_characters(t), 2).to_tensor(shape=[None, 2]),
}


@pytest.mark.parametrize("body", _PROVEN.values(), ids=_PROVEN)
def test_what_is_cut_to_a_length_or_counted_is_proven(body: Callable[[Any], Any]) -> None:
    concrete = traced(body, _TEXT)
    found = proof_of(concrete, [_TEXT])
    assert verdicts(found) == ["proven"], found.outputs
    assert differing(concrete, [_TEXT]) == set()


_LONGEST: dict[str, Callable[[Any], Any]] = {
    "padded": lambda t: _characters(t).to_tensor(),
    "padded_by_numbers": lambda t: tf.strings.split(t).to_tensor(),
    "padded_ngrams": lambda t: tf.strings.ngrams(_characters(t), 2, pad_values=("<", ">")).to_tensor(shape=[None, 2]),
}


@pytest.mark.parametrize("body", _LONGEST.values(), ids=_LONGEST)
def test_what_is_as_wide_as_the_longest_row_is_not_proven(body: Callable[[Any], Any]) -> None:
    found = prove(body, _TEXT)
    assert verdicts(found) == ["unknown"], found.outputs


def test_the_text_says_what_pads() -> None:
    (found,) = prove(_LONGEST["padded"], _TEXT).outputs.values()
    assert "RaggedTensorToTensor" in found.reason
    assert found.reason.endswith("pads to the longest of all rows")


_MIXING: dict[str, Callable[[Any], Any]] = {
    "entry_of_all": lambda t: _characters(t).values[:1],
    "order_of_all": lambda t: tf.sort(tf.strings.unicode_decode(t, "UTF-8").values),
    "first_of_all": lambda t: tf.fill([tf.shape(t)[0]], _characters(t).values[0]),
    "splits": lambda t: _characters(t).row_splits,
    "one_below_the_other": lambda t: tf.concat([_characters(t), _lower(t)], 0).to_tensor(shape=[None, 5]),
    "side_by_side_with_a_turn": lambda t: tf.concat([_characters(t), _lower(t)[::-1]], 1).to_tensor(shape=[None, 5]),
    "splits_of_another": lambda t: tf.RaggedTensor.from_row_splits(
        tf.strings.split(t).values, _characters(t).row_splits, validate=False
    ).to_tensor(shape=[None, 3]),
}


@pytest.mark.parametrize("body", _MIXING.values(), ids=_MIXING)
def test_what_takes_entries_of_all_rows_is_not_proven(body: Callable[[Any], Any]) -> None:
    assert verdicts(prove(body, _TEXT))[0] != "proven"


def test_merged_dimensions_are_rows_again() -> None:
    concrete = traced(lambda t: _words_of_characters(t).merge_dims(-2, -1).to_tensor(shape=[None, 6]), _TEXT)
    assert verdicts(proof_of(concrete, [_TEXT])) != ["mixes"]
    assert differing(concrete, [_TEXT]) == set()


# --- outputs ---


def _ragged(splits: list[Any], values: Any) -> OutputRows:
    names = [f"y_{number}" for number in range(1, len(splits) + 1)]
    found = ragged_verdicts(dict(zip(names, splits, strict=True)) | {"y": values}, {"y": names})
    assert set(found) == {"y", *names}
    assert len(set(found.values())) == 1
    return found["y"]


def test_a_ragged_output_is_proven_if_its_rows_are_those_of_the_inputs() -> None:
    assert _ragged([Splits(-2)], entries_of(-2, 3)).proven
    assert _ragged([Splits(-2), Splits(-3, -2)], entries_of(-3)).proven


@pytest.mark.parametrize(
    ("splits", "values"),
    [
        ([Splits(-2)], entries_of(-3)),
        ([Splits(-2, -4)], entries_of(-2)),
        ([Splits(-2), Splits(-3, -4)], entries_of(-3)),
        ([Splits(-3, -2), Splits(-2)], entries_of(-3)),
        ([Count()], entries_of(-2)),
        ([Splits(-2)], Count()),
        ([Splits(-2)], Rows((3, symbol(-2)), 1, space=-2)),
        ([Splits(-2)], entries_of(-2, symbol(ROWS))),
    ],
)
def test_a_ragged_output_of_other_rows_is_not(splits: list[Any], values: Any) -> None:
    assert _ragged(splits, values).verdict == "unknown"


def test_a_part_that_mixes_says_so() -> None:
    assert _ragged([Splits(-2)], Taint("mixes", "Max runs over the rows")) == ("mixes", "Max runs over the rows")


# --- tokenizers that draw ---


def _tokenizer(best: int | None) -> Any:
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.placeholder(tf.int32, [], "given")
        if best is not None:
            tf.constant(best, name="constant")
    definition = graph.as_graph_def()
    node = definition.node.add(op="SentencepieceTokenizeOp", name="tokens")
    node.input.extend(["model", "text", "given" if best is None else "constant", "alpha", "bos", "eos", "reverse"])
    return definition


@pytest.mark.parametrize(("best", "draws"), [(0, False), (1, False), (-1, True), (5, True), (None, True)])
def test_a_tokenizer_draws_unless_it_gives_the_best_tokens(best: int | None, draws: bool) -> None:
    wanted = ["SentencepieceTokenizeOp"] if draws else []
    assert drawing_operations(_tokenizer(best)) == wanted
    assert operations_with_state(_tokenizer(best)) == wanted
    assert writing_operations(_tokenizer(best)) == []
