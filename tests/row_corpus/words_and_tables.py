"""Strings, ragged and sparse values and tables: widths and sizes that rows give each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from tests.row_corpus.doors import example_of
from tests.row_corpus.row_case import Door, RowCase, halves, pair, save, spec, texts

_WORDS = (b"a", b"bb", b"ccc", b"dddd", b"e")


def _sentences(rng: np.random.Generator, rows: int) -> Array:
    return texts([b" ".join(_WORDS[each] for each in rng.integers(0, 5, rng.integers(1, 5))) for _ in range(rows)])


SENTENCES = Door(
    specs=[spec("text", None, dtype=tf.string)],
    read=lambda text: text,
    draw=lambda rng, rows: {"text": _sentences(rng, rows)},
    rejects=False,
)

#: Words of a vocabulary alone: others are refused.
KNOWN = Door(
    specs=[spec("words", None, dtype=tf.string)],
    read=lambda words: words,
    draw=lambda rng, rows: {"words": texts([_WORDS[each] for each in rng.integers(0, 5, rows)])},
)


def _lists(rng: np.random.Generator, rows: int) -> Array:
    """Examples with a required number and a list of any length."""
    return texts(
        [
            example_of(one=[float(rng.integers(0, 9))], many=[float(each) for each in halves(rng, rng.integers(1, 5))])
            for _ in range(rows)
        ]
    )


LISTS = Door(
    specs=[spec("examples", None, dtype=tf.string)],
    read=lambda examples: tf.io.parse_example(
        examples, {"one": tf.io.FixedLenFeature([], tf.float32), "many": tf.io.VarLenFeature(tf.float32)}
    ),
    draw=lambda rng, rows: {"examples": _lists(rng, rows)},
)


def _split(text: Any) -> Any:
    return tf.strings.split(text)


def _dense(values: Any) -> Any:
    return tf.sparse.to_dense(values["many"])


def _sum_by_row(values: Any) -> Any:
    return tf.sparse.reduce_sum(values["many"], 1) * values["one"]


def _numbers_of_words(path: Path) -> None:
    """A mutable table that is filled with the words of the call, and read."""
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

    def call(words: Any) -> Any:
        table.remove(table.export()[0])
        table.insert(words, tf.range(tf.shape(words, tf.int64)[0]))
        return {"y": table.lookup(words), "size": tf.fill(tf.shape(words), table.size())}

    save(path, call, KNOWN.specs, table=table)


def _table(number: Callable[[Any, Any], Any]) -> Callable[[Path], None]:
    """A vocabulary; an unknown word fails. `number` takes the words and their numbers."""

    def make(path: Path) -> None:
        pairs = tf.lookup.KeyValueTensorInitializer(list(_WORDS), tf.range(5, dtype=tf.int64))
        table = tf.lookup.StaticHashTable(pairs, -1)

        def call(words: Any) -> Any:
            found = table.lookup(words)
            with tf.control_dependencies([tf.debugging.assert_non_negative(found, "words: unknown")]):
                return {"y": number(words, tf.identity(found))}

        save(path, call, KNOWN.specs, table=table)

    return make


def _case(name: str, door: Door, make: Callable[[Path], None], *, mixes: bool, why: str) -> RowCase:
    return RowCase(name=name, make=make, draw=door.draw, mixes=mixes, why=why)


CASES: Sequence[RowCase] = (
    *pair(
        "padded_words",
        SENTENCES,
        lambda text: _split(text).to_tensor("-"),
        lambda text: _split(text).to_tensor("-", shape=[None, 6]),
        "as wide as the longest row",
        "six words",
    ),
    *pair(
        "longest_text",
        SENTENCES,
        lambda text: tf.strings.length(text) - tf.reduce_max(tf.strings.length(text)),
        lambda text: tf.strings.length(text) - tf.reduce_max(tf.strings.length(_split(text)), 1),
        "the longest of all rows",
        "the longest word of a row",
    ),
    *pair(
        "all_texts_joined",
        KNOWN,
        lambda words: tf.strings.join([words, tf.fill(tf.shape(words), tf.strings.reduce_join(words))], "|"),
        lambda words: tf.strings.join([words, tf.strings.upper(words)], "|"),
        "the text of all rows",
        "the text of a row",
    ),
    *pair(
        "first_of_its_kind",
        KNOWN,
        lambda words: tf.unique(words)[1],
        lambda words: tf.strings.to_hash_bucket_fast(words, 7),
        "numbers by the first row that has the word",
        "numbers by hash",
    ),
    *pair(
        "dense_list",
        LISTS,
        _dense,
        lambda values: tf.sparse.to_dense(values["many"])[:, :1],
        "as wide as the longest list",
        "the first of each list",
    ),
    *pair(
        "weighed_lists",
        LISTS,
        lambda values: tf.sparse.reduce_sum(values["many"]) * values["one"],
        _sum_by_row,
        "a sum over all lists",
        "a sum over each list",
    ),
    *pair(
        "tokens_by_place",
        SENTENCES,
        lambda text: tf.RaggedTensor.from_row_splits(
            tf.range(tf.size(_split(text).values)), _split(text).row_splits
        ).to_tensor(shape=[None, 6]),
        lambda text: tf.strings.length(_split(text)).to_tensor(shape=[None, 6]),
        "tokens are numbered through all rows",
        "tokens are measured",
    ),
    *pair(
        "width_as_a_value",
        SENTENCES,
        lambda text: tf.strings.length(text) * tf.shape(_split(text).to_tensor())[1],
        lambda text: tf.strings.length(text) * tf.cast(_split(text).row_lengths(), tf.int32),
        "the width of the widest row is a value",
        "a row's own width",
    ),
    _case(
        "table_filled_by_rows",
        KNOWN,
        _numbers_of_words,
        mixes=True,
        why="a table is filled with the words of the call; its writes are seen by other calls",
    ),
    _case("table_of_words", KNOWN, _table(lambda _, found: found * 2), mixes=False, why="a vocabulary of constants"),
    _case(
        "table_sized_by_rows",
        KNOWN,
        _table(lambda words, found: tf.one_hot(found, tf.cast(tf.reduce_max(found), tf.int32) + 1)),
        mixes=True,
        why="as many columns as the largest number",
    ),
    _case(
        "one_hot_of_words",
        KNOWN,
        _table(lambda words, found: tf.one_hot(found, 5)),
        mixes=False,
        why="as many columns as the vocabulary",
    ),
)
