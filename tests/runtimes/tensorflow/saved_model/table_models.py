"""SavedModels of one table: `key` in, its `place` out; the keys are 0, 1, ..., or from `first` on."""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

WORDS = 100_000

#: What the smallest of the tables below takes, less than it does.
TABLE_BYTES = 1_500_000


def module(table: Callable[[], tf.lookup.experimental.MutableHashTable], dtype: tf.DType) -> tf.Module:
    class Module(tf.Module):
        def __init__(self) -> None:
            self.table = table()

        @tf.function(input_signature=[tf.TensorSpec([None], dtype, name="key")])
        def look_up(self, key: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"place": self.table.lookup(key)}

    return Module()


def save(made: tf.Module, path: Path) -> None:
    tf.saved_model.save(made, str(path), signatures=made.look_up)


def vocabulary(path: Path, first: int = 0) -> tf.lookup.TextFileInitializer:
    file = path.with_suffix(".txt")
    file.write_text("".join(f"{number}\n" for number in range(first, first + WORDS)))
    whole, place = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    return tf.lookup.TextFileInitializer(str(file), tf.string, whole, tf.int64, place)


def make_file_table(path: Path, first: int = 0) -> None:
    save(module(lambda: tf.lookup.StaticHashTable(vocabulary(path, first), -1), tf.string), path)


def make_mutable_table(path: Path, first: int = 0) -> None:
    def table() -> tf.lookup.experimental.MutableHashTable:
        made = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        made.insert([str(number) for number in range(first, first + WORDS)], range(WORDS))
        return made

    save(module(table, tf.string), path)


def make_dense_table(path: Path, first: int = 0) -> None:
    def table() -> tf.lookup.experimental.DenseHashTable:
        made = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, -1, -2)
        made.insert(range(first, first + WORDS), range(WORDS))
        return made

    save(module(table, tf.int64), path)


def make_tensorflow_1_table(path: Path, first: int = 0) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        key = v1.placeholder(tf.string, [None])
        place = v1.lookup.StaticHashTable(vocabulary(path, first), -1).lookup(key)
        filled = v1.tables_initializer()
        session.run(filled)
        v1.saved_model.simple_save(session, str(path), {"key": key}, {"place": place}, legacy_init_op=filled)


def make_keras_look_up(path: Path, first: int = 0) -> None:
    key = tf.keras.Input([], dtype=tf.string, name="key")
    words = tf.keras.layers.StringLookup(vocabulary=[str(number) for number in range(first, first + WORDS)])
    tf.keras.Model({"key": key}, {"place": words(key) - 1}).export(str(path), verbose=False)


def make_tensorflow_1_iterator(path: Path, first: int = 0) -> None:
    """The place is searched in what an iterator gives: all keys, in each call."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        key = v1.placeholder(tf.int64, [None])
        data = tf.data.Dataset.from_tensors(tf.range(first, first + WORDS, dtype=tf.int64)).repeat()
        iterator = v1.data.make_initializable_iterator(data, shared_name="numbers")
        equal = tf.equal(key[:, None], iterator.get_next())
        place = tf.where(tf.reduce_any(equal, 1), tf.argmax(equal, 1), -1)
        session.run(iterator.initializer)
        v1.saved_model.simple_save(
            session, str(path), {"key": key}, {"place": place}, legacy_init_op=iterator.initializer
        )


KINDS = [
    make_file_table,
    make_mutable_table,
    make_dense_table,
    make_tensorflow_1_table,
    make_keras_look_up,
    make_tensorflow_1_iterator,
]
