"""`--accept text`: the vectorisation that a source holds comes before its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.importing.order import CannotImport
from app.importing.source import Endpoint, Source
from tests.importing.accept.sources import identity, imported, spec

_WORDS = ["good", "bad", "film"]


def _source(length: int | None, **inputs: Any) -> Source:
    """A model of word numbers, whose source holds the layer that makes them."""
    layer = keras.layers.TextVectorization(vocabulary=_WORDS, output_sequence_length=length)
    given = inputs or {"tokens": spec(None, length, dtype=tf.int32)}
    return replace(identity(given), vectorise=layer, kept=[layer])


@pytest.mark.parametrize("length", [4, None])
def test_text_becomes_the_numbers_of_the_source(length: int | None, tmp_path: Path) -> None:
    proven, notes = imported(_source(length), tmp_path / "1", accept="text")
    signature = proven.signatures["serving_default"]
    assert str(signature.inputs["text"]) == "string[?]"
    assert "tokens" in proven.signatures["tensors"].inputs
    assert notes == [
        "text becomes tokens by the vectorisation of the source; signature 'tensors' takes the model's own inputs"
    ]
    loaded = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    answer = loaded(text=tf.constant(["A good, good FILM", "bad"]))["tokens_out"].numpy()
    np.testing.assert_array_equal(answer[:, :4], [[1, 2, 2, 4], [3, 0, 0, 0]])
    if length:
        assert signature.shares_calls, signature.alone


def test_several_inputs_get_their_parts(tmp_path: Path) -> None:
    def parts(texts: Any) -> dict[str, Any]:
        tokens = tf.strings.split(texts)
        return {"ids": tf.strings.length(tokens), "mask": tf.ones_like(tokens, tf.int64)}

    inputs = {"ids": spec(None, None, dtype=tf.int32), "mask": spec(None, None, dtype=tf.int32), "age": spec(None)}
    source = replace(identity(inputs), vectorise=parts)
    proven, _ = imported(source, tmp_path / "1", accept="text")
    assert sorted(proven.signatures["serving_default"].inputs) == ["age", "text"]


def test_a_model_that_takes_text_stays_as_it_is(tmp_path: Path) -> None:
    def call(tensors: Any) -> Any:
        return {"length": tf.strings.length(tensors["review"])}

    def run(arrays: Any) -> Any:
        return {"length": np.array([len(text) for text in arrays["review"]], np.int32)}

    source = Source("a test", [Endpoint({"review": spec(None, dtype=tf.string)}, call, run)])
    proven, notes = imported(source, tmp_path / "1", accept="text")
    assert (list(proven.signatures), notes) == (["serving_default"], ["input 'review' takes text already"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (identity({"ids": spec(None, 8, dtype=tf.int32)}), "takes ids int32(None, 8), and holds nothing that makes"),
        (_source(4, a=spec(None, 4), b=spec(None, 4)), "the vectorisation gives one tensor; the inputs are a float32"),
        (_source(4, a=spec(None, 5)), "the vectorisation gives a int64(None, 4); the inputs are a float32(None, 5)"),
    ],
)
def test_what_does_not_fit_is_told(source: Source, message: str, tmp_path: Path) -> None:
    with pytest.raises(CannotImport) as raised:
        imported(source, tmp_path / "1", accept="text")
    assert message in str(raised.value)
