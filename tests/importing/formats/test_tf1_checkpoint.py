"""The reader of checkpoints of TensorFlow 1: files, pipelines, training that is left out, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.importing.formats.tf1_checkpoint import read
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from app.repository.disk.importable import format_of
from tests.importing.formats.proven import answers, proven

tf1 = tf.compat.v1


def classifier(*, use_resource: bool = False) -> None:
    """x [batch, 4] -> predictions [batch, 3], with batch normalisation, a loss and an optimizer."""
    with tf1.variable_scope("", use_resource=use_resource):
        x = tf1.placeholder(tf.float32, [None, 4], name="x")
        labels = tf1.placeholder(tf.int64, [None], name="labels")
        training = tf1.placeholder(tf.bool, [], name="is_training")
        start = tf1.random_normal_initializer(seed=3)
        hidden = tf.matmul(x, tf1.get_variable("weights", [4, 3], initializer=start))
        mean = tf1.get_variable("mean", [3], initializer=start, trainable=False)
        batch_mean = tf.reduce_mean(hidden, 0)
        hidden = tf1.cond(training, lambda: hidden - tf.identity(mean.assign(batch_mean)), lambda: hidden - mean)
        tf.nn.softmax(hidden, name="predictions")
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, hidden)
        tf1.train.AdamOptimizer().minimize(loss)
        tf1.summary.scalar("loss", loss)


def saved(
    folder: Path, build: Callable[[], Any] = classifier, *, step: int = 5, format_: Any = tf1.train.SaverDef.V2
) -> str:
    """Writes a checkpoint of what a function builds; returns the common beginning of its files."""
    folder.mkdir(exist_ok=True)
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.disable_control_flow_v2()
        try:
            build()
        finally:
            tf1.enable_control_flow_v2()
        session.run(tf1.global_variables_initializer())
        saver = tf1.train.Saver(write_version=format_)
        return str(saver.save(session, str(folder / "model.ckpt"), global_step=step))


def source_of(path: Path | str, **order: Any) -> Source:
    return read(Path(path), ImportOrder(str(path), "", **order))


@pytest.mark.parametrize("use_resource", [False, True])
def test_the_model_is_cut_out_of_its_training(tmp_path: Path, use_resource: bool) -> None:
    saved(tmp_path / "run", lambda: classifier(use_resource=use_resource))
    source = source_of(tmp_path / "run")
    assert source.notes == ["is_training is fixed to False"]
    signature = proven(source, tmp_path / "1")["serving_default"]
    assert {name: str(spec) for name, spec in signature.inputs.items()} == {"x": "float32[?,4]"}
    assert {name: str(spec) for name, spec in signature.outputs.items()} == {"predictions": "float32[?,3]"}
    assert not signature.writes
    assert signature.all_rows


@pytest.mark.parametrize("name", ["", "checkpoint", "model.ckpt-5", "model.ckpt-5.meta", "model.ckpt-5.index"])
def test_a_checkpoint_is_named_by_its_folder_one_of_its_files_or_their_beginning(tmp_path: Path, name: str) -> None:
    saved(tmp_path)
    path = tmp_path / name if name else tmp_path
    assert format_of(path) == "checkpoint"
    assert source_of(path).endpoints


def test_of_several_checkpoints_the_named_one_is_taken_wherever_it_was_written(tmp_path: Path) -> None:
    saved(tmp_path, step=1)
    saved(tmp_path, step=2)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/data/of/training/model.ckpt-1"\n')
    assert source_of(tmp_path).notes[0] == "of several checkpoints it is model.ckpt-1"


def test_of_several_checkpoints_without_a_list_the_newest_is_taken(tmp_path: Path) -> None:
    for step in (10, 9):
        saved(tmp_path, step=step)
    for file in tmp_path.iterdir():
        os.utime(file, (1, 1))
    (tmp_path / "checkpoint").unlink()
    assert source_of(tmp_path).notes[0] == "of several checkpoints it is model.ckpt-10"


def test_a_checkpoint_in_the_format_of_tensorflow_0_is_read(tmp_path: Path) -> None:
    saved(tmp_path, format_=tf1.train.SaverDef.V1)
    proven(source_of(tmp_path), tmp_path / "1")


def test_a_pipeline_of_inputs_ends_where_the_model_begins(tmp_path: Path) -> None:
    def build() -> None:
        data = tf1.data.Dataset.from_tensor_slices((np.ones((8, 4), np.float32), np.ones(8, np.int64))).batch(2)
        images, labels = tf1.data.make_one_shot_iterator(data).get_next()
        logits = tf.matmul(images, tf1.get_variable("weights", [4, 3], use_resource=False))
        tf.nn.softmax(logits, name="predictions")
        tf1.losses.sparse_softmax_cross_entropy(labels, logits)

    saved(tmp_path / "run", build)
    signature = proven(source_of(tmp_path / "run"), tmp_path / "1")["serving_default"]
    assert {name: str(spec) for name, spec in signature.inputs.items()} == {"IteratorGetNext": "float32[?,4]"}
    assert list(signature.outputs) == ["predictions"]


def test_ends_are_those_that_are_asked_for(tmp_path: Path) -> None:
    saved(tmp_path / "run")
    signature = proven(source_of(tmp_path / "run", inputs=["x"], outputs=["MatMul"]), tmp_path / "1")["serving_default"]
    assert list(signature.outputs) == ["MatMul"]


def test_answers_are_those_of_the_variables(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, [None], name="x")
        tf.multiply(x, tf1.get_variable("factor", [], initializer=tf1.constant_initializer(7.0)), name="y")

    saved(tmp_path / "run", build)
    proven(source_of(tmp_path / "run"), tmp_path / "1")
    assert answers(tmp_path / "1", "serving_default", {"x": np.array([2.0], np.float32)})["y"].tolist() == [14.0]


# --- what is refused ---


def test_weights_without_a_graph_say_that_code_is_missing(tmp_path: Path) -> None:
    tf.train.Checkpoint(weights=tf.Variable([1.0])).save(str(tmp_path / "ckpt"))
    with pytest.raises(CannotImport, match=r"ckpt-1 holds weights only, no graph \(no .meta file\)"):
        source_of(tmp_path)


def test_a_graph_without_weights_says_which_file_is_missing(tmp_path: Path) -> None:
    Path(saved(tmp_path) + ".index").unlink()
    with pytest.raises(CannotImport, match=r"a graph without its weights: model\.ckpt-5\.index is not there"):
        source_of(tmp_path)


def test_cut_weights_are_an_error_that_tells_both_sizes(tmp_path: Path) -> None:
    file = Path(saved(tmp_path) + ".data-00000-of-00001")
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CannotImport, match=r"data-00000-of-00001 is \d+ bytes, its index says \d+"):
        source_of(tmp_path)


def test_weights_of_another_graph_are_an_error(tmp_path: Path) -> None:
    prefix = saved(tmp_path)
    other = saved(tmp_path / "other", lambda: tf1.get_variable("other", [2]))
    for ending in (".index", ".data-00000-of-00001"):
        Path(prefix + ending).write_bytes(Path(other + ending).read_bytes())
    with pytest.raises(CannotImport, match=r"the weights do not fit the graph: .*not found in checkpoint"):
        source_of(tmp_path)


def test_python_code_in_the_graph_is_refused(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, [None], name="x")
        factor = tf1.get_variable("factor", [])
        tf.multiply(tf1.py_func(np.abs, [x], tf.float32), factor, name="y")

    saved(tmp_path, build)
    with pytest.raises(CannotImport, match=r"PyFunc.*calls Python code"):
        source_of(tmp_path)
