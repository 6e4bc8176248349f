"""Tables of a version go when it goes, and versions that name theirs alike have one each."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from app.runtimes.tensorflow.saved_model.saved_model import SavedModel

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


KINDS = [make_file_table, make_mutable_table, make_dense_table, make_tensorflow_1_table]


def places(model: SavedModel, *keys: int) -> list[int]:
    text = model.signatures["serving_default"].inputs["key"].dtype.kind not in "iu"
    values = np.array([b"%d" % key for key in keys], object) if text else np.array(keys, np.int64)
    found: list[int] = model.run("serving_default", {"key": values}, ())["place"].tolist()
    return found


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("make", KINDS)
def test_the_memory_of_tables_comes_back(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "1")

    def swap() -> int:
        model = SavedModel(tmp_path / "1")
        assert places(model, 5) == [5]
        model.close()
        return resident_bytes()

    first = max(swap() for _ in range(4))  # what the allocator keeps for the next one
    assert min([swap() for _ in range(9)][-3:]) - first < 4 * TABLE_BYTES


@pytest.mark.parametrize("make", KINDS)
def test_tables_of_two_versions_have_nothing_in_common(make: Callable[[Path, int], None], tmp_path: Path) -> None:
    make(tmp_path / "1", 0)
    make(tmp_path / "2", 100)
    one, same, two = (SavedModel(tmp_path / version) for version in ("1", "1", "2"))
    assert (places(one, 150, 0), places(same, 150, 0), places(two, 150, 0)) == ([150, 0], [150, 0], [50, -1])
    one.close()
    assert (places(same, 150, 0), places(two, 150, 0)) == ([150, 0], [50, -1])
    two.close()
    assert places(same, 150, 0) == [150, 0]
    same.close()
