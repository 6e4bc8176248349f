"""The reader of SavedModels: functions become signatures, graphs of other tags are served, nothing leads out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.importing.formats.saved_model import read
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from app.runtimes.tensorflow.private_api import SavedModelProto
from tests.importing.formats.proven import answers, proven
from tests.support.savedmodels import make_half_plus_two
from tests.support.tf1_savedmodels import make_vocabulary


class TwoFunctions(tf.Module):
    """`__call__` is a softmax; `scale` takes a dictionary and a flag; `train` is for training."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable(2.0)

    @tf.function
    def __call__(self, x: Any) -> Any:
        return tf.nn.softmax(x * self.factor, name="probabilities")

    @tf.function
    def scale(self, parts: Mapping[str, Any], training: bool = False) -> Any:
        factor = 100.0 if training else self.factor
        return {"sum": parts["a"] + parts["b"], "scaled": [parts["a"] * factor]}

    @tf.function
    def train(self, x: Any) -> Any:
        return self.factor.assign_add(tf.reduce_sum(x))


def source_of(path: Path) -> Source:
    return read(path, ImportOrder(str(path), ""))


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("functions") / "model"
    module = TwoFunctions()
    rows = tf.TensorSpec([None, 3], tf.float32)
    module.__call__.get_concrete_function(tf.TensorSpec([None, 3], tf.float32, name="x"))
    module.__call__.get_concrete_function(tf.TensorSpec([1, 3], tf.float32, name="x"))
    for training in (True, False):
        module.scale.get_concrete_function({"a": rows, "b": rows}, training=training)
    module.train.get_concrete_function(rows)
    tf.saved_model.save(module, str(path))
    return path


def test_functions_without_signatures_become_signatures_with_their_names(functions: Path, tmp_path: Path) -> None:
    source = source_of(functions)
    assert [each.name for each in source.endpoints] == ["serving_default", "scale"]
    signatures = proven(source, tmp_path / "1")
    assert {name: str(spec) for name, spec in signatures["serving_default"].inputs.items()} == {"x": "float32[?,3]"}
    assert list(signatures["serving_default"].outputs) == ["probabilities"]
    assert sorted(signatures["scale"].inputs) == ["a", "b"]
    assert sorted(signatures["scale"].outputs) == ["scaled", "sum"]


def test_the_trace_for_inference_is_taken_and_not_that_of_training(functions: Path, tmp_path: Path) -> None:
    source = source_of(functions)
    proven(source, tmp_path / "1")
    ones = np.ones((2, 3), np.float32)
    found = answers(tmp_path / "1", "scale", {"a": ones, "b": ones})
    np.testing.assert_array_equal(found["scaled"], 2 * ones)


def test_an_export_of_functions_does_not_hold_those_of_training(functions: Path, tmp_path: Path) -> None:
    proven(source_of(functions), tmp_path / "1")
    graph = SavedModelProto.FromString((tmp_path / "1" / "saved_model.pb").read_bytes()).meta_graphs[0]
    assert not [each.signature.name for each in graph.graph_def.library.function if "train" in each.signature.name]


def test_a_savedmodel_with_signatures_is_taken_as_it_is(tmp_path: Path) -> None:
    make_half_plus_two(tmp_path / "source")
    source = source_of(tmp_path / "source")
    assert source.files["saved_model.pb"] == tmp_path / "source" / "saved_model.pb"
    assert not source.notes
    assert sorted(proven(source, tmp_path / "1")) == ["classify_x_to_y", "regress_x_to_y", "serving_default"]


def tagged(path: Path, tags: list[str], signature: str) -> None:
    """Gives a SavedModel of TensorFlow 1 other tags, and its signature another name, as TF-Hub does."""
    file = path / "saved_model.pb"
    saved = SavedModelProto.FromString(file.read_bytes())
    graph = saved.meta_graphs[0]
    graph.meta_info_def.tags[:] = tags
    graph.signature_def[signature].CopyFrom(graph.signature_def["serving_default"])
    del graph.signature_def["serving_default"]
    saved.meta_graphs.add().CopyFrom(graph)
    saved.meta_graphs[0].meta_info_def.tags[:] = ["train"]
    file.write_bytes(saved.SerializeToString())


def test_a_module_of_tf_hub_1_is_served_with_its_table(tmp_path: Path) -> None:
    make_vocabulary(tmp_path / "hub")
    tagged(tmp_path / "hub", [], "default")
    source = source_of(tmp_path / "hub")
    assert any("tagged nothing" in note for note in source.notes)
    proven(source, tmp_path / "1")
    words = np.array([b"c", b"zebra", b"a"], object)
    assert answers(tmp_path / "1", "serving_default", {"words": words})["ids"].tolist() == [2, -1, 0]


def test_a_function_that_reads_a_file_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    module = tf.Module()
    module.f = tf.function(tf.io.read_file, input_signature=[tf.TensorSpec([], tf.string, name="x")])
    tf.saved_model.save(module, str(tmp_path / "model"))
    with pytest.raises(CannotImport, match="ReadFile"):
        source_of(tmp_path / "model")


def test_a_savedmodel_without_traced_functions_says_so(tmp_path: Path) -> None:
    module = tf.Module()
    module.v = tf.Variable(1.0)
    module.f = tf.function(lambda x: x)
    tf.saved_model.save(module, str(tmp_path / "model"))
    with pytest.raises(CannotImport, match="neither signatures nor functions"):
        source_of(tmp_path / "model")


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    make_half_plus_two(tmp_path / "model")
    (tmp_path / "model" / "assets").mkdir(exist_ok=True)
    (tmp_path / "model" / "assets" / "words").symlink_to("/etc/hostname")
    with pytest.raises(CannotImport, match="link out of"):
        source_of(tmp_path / "model")


def test_a_cut_graph_is_an_error_that_names_it(tmp_path: Path) -> None:
    make_half_plus_two(tmp_path / "model")
    file = tmp_path / "model" / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CannotImport, match=r"saved_model.pb.*cut short"):
        source_of(tmp_path / "model")
