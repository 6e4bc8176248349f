import gc
import shutil
import weakref
from math import inf
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as SavedModelProto

from app.core.errors import InvalidRequest
from app.core.time_budget import TimeBudget
from app.repository.disk.local_copies import keep_assets
from app.runtime import VariantOptions
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from tests.awkward.words import asset_read_in_each_call
from tests.support import savedmodels
from tests.support.garbage import alive, no_collection


def test_every_signature_of_a_tensorflow_1_model_runs(tmp_path: Path) -> None:
    savedmodels.make_tf1(tmp_path)
    model = SavedModel(tmp_path)
    x = np.array([[2]], np.float32)
    assert model.run("classify", {"inputs": x}, ())["scores"].tolist() == [[6]]
    assert model.run("regress", {"inputs": x}, ())["outputs"].tolist() == [[6]]
    both = model.run("serving_default", {"images/x": x}, ())
    assert {name: array.tolist() for name, array in both.items()} == {"scaled": [[6]], "guarded": [[2]]}
    with pytest.raises(InvalidRequest, match="x must be below 10"):
        model.run("serving_default", {"images/x": 10 * x}, ())


def test_the_classic_example_model(tmp_path: Path) -> None:
    savedmodels.make_half_plus_two(tmp_path)
    model = SavedModel(tmp_path)
    assert model.run("serving_default", {"x": np.array([1, 2, 5], np.float32)}, ())["y"].tolist() == [2.5, 3, 4.5]
    column = np.array([[1], [2]], np.float32)
    assert model.run("regress_x_to_y", {"inputs": column}, ())["outputs"].tolist() == [[2.5], [3]]
    assert model.run("classify_x_to_y", {"inputs": column}, ())["scores"].tolist() == [[2.5], [3]]


def test_a_signature_that_tensorflow_does_not_load_is_not_offered(tmp_path: Path) -> None:
    savedmodels.make_scalar(tmp_path)
    file = tmp_path / "saved_model.pb"
    proto = SavedModelProto.FromString(file.read_bytes())
    definitions = proto.meta_graphs[0].signature_def
    definitions["orphan"].CopyFrom(definitions["serving_default"])
    file.write_bytes(proto.SerializeToString())
    assert list(SavedModel(tmp_path).signatures) == ["serving_default"]


def test_close_lets_go_of_the_memory(tmp_path: Path) -> None:
    savedmodels.make_image_net(tmp_path)
    model = SavedModel(tmp_path)
    model.run("serving_default", {"image": np.zeros([1, 8, 8], np.float32)}, ())
    before = resources()
    kernel = weakref.ref(model._loaded.kernel)
    model.close()
    assert kernel() is None
    assert resources() < before


def test_close_frees_the_graphs_without_a_collection_which_would_stop_all_threads(tmp_path: Path) -> None:
    savedmodels.make_image_net(tmp_path)
    with no_collection() as collections:
        before = alive(tf.Graph), alive(tf.Operation)
        model = SavedModel(tmp_path)
        model.run("serving_default", {"image": np.zeros([1, 8, 8], np.float32)}, ())
        model.close()
        model.close()
        assert (alive(tf.Graph), alive(tf.Operation)) == before
    assert not collections


def test_close_takes_no_other_model_apart(tmp_path: Path) -> None:
    savedmodels.make_image_net(tmp_path)
    image = {"image": np.random.default_rng(1).random([2, 8, 8], np.float32)}
    first, second = SavedModel(tmp_path), SavedModel(tmp_path)
    expected = first.run("serving_default", image, ())["probabilities"]
    first.close()
    np.testing.assert_array_equal(second.run("serving_default", image, ())["probabilities"], expected)
    second.stop_variants("serving_default")
    np.testing.assert_array_equal(second.run("serving_default", image, ("probabilities",))["probabilities"], expected)


def test_close_collects_what_it_cannot_take_apart(tmp_path: Path) -> None:
    savedmodels.make_tf1(tmp_path)
    with no_collection() as collections:
        model = SavedModel(tmp_path)
        with_it = alive(tf.Graph)
        model.close()
        assert alive(tf.Graph) < with_it
    assert collections == [2]


def resources() -> int:
    """How many handles to variables, which hold their memory, are alive in this process."""
    return sum(isinstance(thing, tf.Tensor) and thing.dtype == tf.resource for thing in gc.get_objects())


def test_any_words_of_tensorflow_become_ours(tmp_path: Path) -> None:
    savedmodels.make_image_decoder(tmp_path)
    with pytest.raises(InvalidRequest) as error:
        SavedModel(tmp_path).run("serving_default", {"png": np.array([b"no image"], object)}, ())
    assert isinstance(error.value.__cause__, tf.errors.InvalidArgumentError)


def test_when_it_is_loaded_only_its_assets_are_read(tmp_path: Path) -> None:
    """Of a local copy nothing else stays."""
    asset_read_in_each_call(tmp_path)
    model = SavedModel(tmp_path)
    assert keep_assets(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["assets"]
    assert model.run("serving_default", {"text": np.array([b"a"], object)}, ())["y"].tolist() == [b"asuffix"]


def test_the_files_are_not_needed_to_remember_variants(tmp_path: Path) -> None:
    savedmodels.make_image_net(tmp_path / "1")
    cache = tmp_path / "cache"
    for files_stay in (True, False):
        model = SavedModel(tmp_path / "1", VariantOptions("auto", cache=cache))
        if not files_stay:
            shutil.rmtree(tmp_path / "1")
        model.tune([1], lambda *_: None, TimeBudget(inf))
    assert len(list(cache.glob("*.json"))) == 1
