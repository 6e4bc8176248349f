"""What is missing in the folder of a SavedModel, without TensorFlow; TensorFlow is only used to write some."""

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from app.runtimes.tensorflow.saved_model.files import CutShort, missing_part, read_graph, read_index

ROOT = Path(__file__).parents[4]
DIGITS = ROOT / "models" / "digits" / "1"
SHARD = "variables/variables.data-00000-of-00001"


class WithVocabulary(tf.Module):
    """Looks up words in a file."""

    def __init__(self, vocabulary: Path) -> None:
        super().__init__()
        line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        initializer = tf.lookup.TextFileInitializer(str(vocabulary), tf.string, line, tf.int64, number)
        self.table = tf.lookup.StaticHashTable(initializer, -1)
        self.weights = [tf.Variable(tf.random.uniform([1000 + number]), name=f"w{number}") for number in range(300)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def serve(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"ids": self.table.lookup(words), "sum": tf.add_n([w[0] for w in self.weights])}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    (folder / "vocabulary.txt").write_text("a\nb\n")
    module = WithVocabulary(folder / "vocabulary.txt")
    tf.saved_model.save(module, str(folder / "1"), signatures=module.serve)
    return folder / "1"


@pytest.fixture
def version(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "1"))


def test_what_tensorflow_wrote_is_whole(saved: Path) -> None:
    assert missing_part(saved) == missing_part(DIGITS) == ""
    assert read_graph(saved / "saved_model.pb") == (["vocabulary.txt"], True)


def test_the_index_says_the_size_of_each_shard(saved: Path) -> None:
    shards = read_index((saved / "variables" / "variables.index").read_bytes())
    assert shards == (1, {0: (saved / SHARD).stat().st_size})


def test_a_shard_that_is_too_short_or_not_there_is_told(version: Path) -> None:
    size = (version / SHARD).stat().st_size
    for length in (0, size // 2, size - 1):
        with (version / SHARD).open("r+b") as file:
            file.truncate(length)
        assert missing_part(version) == f"{SHARD} is {length:,} bytes, its index says {size:,}"
    (version / SHARD).unlink()
    assert missing_part(version) == f"{SHARD} is not there"


def test_an_asset_that_is_not_there_is_told(version: Path) -> None:
    (version / "assets" / "vocabulary.txt").unlink()
    assert missing_part(version) == "assets/vocabulary.txt is not there"


def test_variables_without_an_index_are_told(version: Path) -> None:
    (version / "variables" / "variables.index").unlink()
    assert missing_part(version) == "variables/variables.index is not there"


def test_variables_of_which_nothing_is_there_are_told(version: Path) -> None:
    for file in (version / "variables").iterdir():
        file.unlink()
    assert missing_part(version) == "variables/variables.index is not there"
    (version / "variables").rmdir()
    assert missing_part(version) == "variables/variables.index is not there"


def test_a_graph_of_constants_needs_no_variables(tmp_path: Path) -> None:
    """TensorFlow 1 writes none for it, and loads it without the folder."""
    path = tmp_path / "1"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        tf.compat.v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": 2.0 * x})
    assert missing_part(path) == ""
    shutil.rmtree(path / "variables")
    assert missing_part(path) == ""
    assert tf.saved_model.load(str(path)).signatures["serving_default"](x=tf.ones([1]))["y"] == 2.0


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index"])
def test_a_file_that_is_cut_short_anywhere_is_told(version: Path, name: str) -> None:
    whole = (version / name).read_bytes()

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, len(whole) - 1))
    def cut(length: int) -> None:
        (version / name).write_bytes(whole[:length])
        assert missing_part(version) in {
            f"{name}, of {length:,} bytes, is cut short or no SavedModel",
            f"{name}, of {length:,} bytes, is cut short or no index",
        }

    cut()


@given(st.binary(max_size=300))
def test_no_bytes_are_more_than_cut_short(content: bytes) -> None:
    footer = (DIGITS / "variables" / "variables.index").read_bytes()[-8:]
    for table in (content, content + footer):
        with suppress(CutShort):
            read_index(table)


def test_a_graph_as_text_is_left_to_tensorflow(tmp_path: Path) -> None:
    assert missing_part(tmp_path) == "it holds no saved_model.pb, model.tflite or pipeline.yaml"
    (tmp_path / "saved_model.pbtxt").touch()
    assert missing_part(tmp_path) == ""


def test_it_needs_no_tensorflow() -> None:
    """Another process calls it, with the standard library alone."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import app.runtimes.tensorflow.saved_model.files"
    subprocess.run([sys.executable, "-I", "-S", "-c", program, str(ROOT)], check=True)
