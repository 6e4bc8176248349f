"""LiteRT's own matters; what holds for every runtime is in test_every_runtime.py."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from app.core.errors import InferenceFailed, InvalidRequest
from app.core.inference import Array
from app.runtime import LoadedModel, Runtime, RuntimeOptions, create_runtime, offline_signatures_of
from tests.support import savedmodels
from tests.support.tflite.tflite_lstm import STEPS, WIDTH, fused_lstm
from tests.support.tflite.tflite_models import convert, converted, write

DEFAULT = "serving_default"
FLOATS = tf.TensorSpec([None], tf.float32, name="x")

Load = Callable[[bytes], LoadedModel]


@pytest.fixture
def runtime() -> Runtime:
    return create_runtime("litert", RuntimeOptions(batches_in_flight=2, intra_op_threads=1))


@pytest.fixture
def load(runtime: Runtime, tmp_path: Path) -> Load:
    def load_file(content: bytes) -> LoadedModel:
        write(content, tmp_path / "m" / "1")
        return runtime.load(tmp_path / "m" / "1")

    return load_file


def interpreters() -> list[Any]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Interpreter)]


def image_net_of_one() -> bytes:
    """The image net with a fixed batch of 1, as most public files have."""
    random = np.random.default_rng(7)
    kernel = tf.constant(random.normal(0, 1, [3, 3, 1, 8]).astype(np.float32))
    dense = tf.constant(random.normal(0, 0.1, [512, 4]).astype(np.float32))

    def call(image: Any) -> Any:
        features = tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "SAME"))
        return {"probabilities": tf.nn.softmax(tf.reshape(features, [1, 512]) @ dense)}

    return convert(call, tf.TensorSpec([1, 8, 8, 1], tf.float32, name="image"))


def test_a_fixed_batch_of_one_takes_rows_each_by_a_call_of_its_own(load: Load) -> None:
    content = image_net_of_one()
    model = load(content)
    signature = model.signatures[DEFAULT]
    assert str(signature.inputs["image"]) == "float32[?,8,8,1]"
    assert signature.graph_rows is not None
    assert signature.graph_rows.proven
    images = np.random.default_rng(1).random([5, 8, 8, 1], np.float32)
    alone = Interpreter(model_content=content).get_signature_runner(DEFAULT)
    want = np.concatenate([alone(image=image[np.newaxis])["probabilities"] for image in images])
    np.testing.assert_array_equal(model.run(DEFAULT, {"image": images}, ())["probabilities"], want)
    np.testing.assert_array_equal(model.run(DEFAULT, {"image": images[:1]}, ())["probabilities"], want[:1])


def test_rows_that_repeat_the_one_before_are_computed_once(load: Load) -> None:
    """As padding does; except where a call is to differ, since it draws random numbers."""
    model = load(image_net_of_one())
    images = np.random.default_rng(1).random([2, 8, 8, 1], np.float32)
    padded = np.concatenate([images, images[1:], images[1:], images[:1]])
    answer = model.run(DEFAULT, {"image": padded}, ())["probabilities"]
    two = model.run(DEFAULT, {"image": images}, ())["probabilities"]
    np.testing.assert_array_equal(answer, two[[0, 1, 1, 1, 0]])


def test_rows_that_draw_are_each_drawn(tmp_path: Path, runtime: Runtime) -> None:
    content = convert(
        lambda x: {"y": x + tf.random.uniform([1, 2])},
        tf.TensorSpec([1, 2], tf.float32, name="x"),
    )
    write(content, tmp_path / "m" / "1")
    model = runtime.load(tmp_path / "m" / "1")
    assert model.signatures[DEFAULT].draws == ("RANDOM_UNIFORM",)
    drawn = model.run(DEFAULT, {"x": np.zeros([4, 2], np.float32)}, ())["y"]
    assert len({row.tobytes() for row in drawn}) == 4


def test_equal_bits_of_strings_are_compared_by_their_content(load: Load) -> None:
    model = load(convert(lambda s: {"same": tf.identity(s)}, tf.TensorSpec([1, 1], tf.string, name="s")))
    words = np.array([[b"a"], [b"a"], [b"b"], [b""]], object)
    assert model.run(DEFAULT, {"s": words}, ())["same"].tolist() == words.tolist()


def test_a_fused_rnn_begins_each_call_with_zeros(load: Load) -> None:
    """Else an answer would depend on the calls before it, and so on other callers."""
    content, function = fused_lstm()
    model = load(content)
    assert model.signatures[DEFAULT].writes == ()
    x = np.random.default_rng(0).random([3, STEPS, WIDTH], np.float32)
    want = np.concatenate([function(tf.constant(row[np.newaxis]))["y"].numpy() for row in x])
    for _ in range(2):
        np.testing.assert_allclose(model.run(DEFAULT, {"x": x}, ())["y"], want, rtol=1e-4, atol=1e-5)


def test_variables_keep_their_values_in_one_interpreter(load: Load) -> None:
    before = len(interpreters())
    model = load(converted(savedmodels.make_counter))
    assert model.signatures[DEFAULT].writes == ("ASSIGN_VARIABLE",)
    with ThreadPoolExecutor(4) as threads:
        x = np.zeros(1, np.float32)
        counts = list(threads.map(lambda _: int(model.run(DEFAULT, {"x": x}, ())["calls"][0]), range(40)))
    assert sorted(counts) == list(range(1, 41))
    assert len(interpreters()) == before + 1


def test_interpreters_are_bounded_and_let_go(load: Load) -> None:
    before = len(interpreters())
    model = load(converted(savedmodels.make_slow))
    with ThreadPoolExecutor(6) as threads:
        steps = {"steps": np.array([2000], np.int32)}
        for done in [threads.submit(model.run, DEFAULT, steps, ()) for _ in range(12)]:
            done.result()
    assert len(interpreters()) == before + 3  # of two batches in flight, and of a call that measures
    model.close()
    assert len(interpreters()) == before


def test_a_call_that_ends_after_the_close_lets_its_interpreter_go(load: Load) -> None:
    before = len(interpreters())
    model = load(converted(savedmodels.make_slow))
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(model.run, DEFAULT, {"steps": np.array([savedmodels.SLOW_STEPS_A_SECOND], np.int32)}, ())
        while not done.running():
            pass
        model.close()
        with pytest.raises(InferenceFailed, match="closed"):
            model.run(DEFAULT, {"steps": np.array([1], np.int32)}, ())
        del model
        done.exception()
    del done
    assert len(interpreters()) == before


def test_a_value_that_litert_rejects_is_the_callers_fault_and_spoils_nothing(load: Load) -> None:
    rows = tf.TensorSpec([None], tf.int32, name="rows")
    model = load(convert(lambda rows: {"found": tf.gather(tf.constant([5.0, 6.0]), rows)}, rows))
    assert model.run(DEFAULT, {"rows": np.array([1], np.int32)}, ())["found"].tolist() == [6]
    for _ in range(2):  # the second error does not tell of the first
        with pytest.raises(InvalidRequest) as error:
            model.run(DEFAULT, {"rows": np.array([1, 2], np.int32)}, ())
        assert str(error.value) == "LiteRT cannot compute this: gather index out of bounds (GATHER)"
    assert model.run(DEFAULT, {"rows": np.array([0, 1], np.int32)}, ())["found"].tolist() == [5, 6]


def test_a_signature_that_never_answered_is_to_blame_for_its_errors(load: Load) -> None:
    rows = tf.TensorSpec([None], tf.int32, name="rows")
    model = load(convert(lambda rows: {"found": tf.gather(tf.constant([5.0, 6.0]), rows + 7)}, rows))
    with pytest.raises(InferenceFailed, match="gather index out of bounds"):
        model.run(DEFAULT, {"rows": np.array([1], np.int32)}, ())
    assert model.run(DEFAULT, {"rows": np.array([-7], np.int32)}, ())["found"].tolist() == [5]
    with pytest.raises(InvalidRequest, match="gather index out of bounds"):
        model.run(DEFAULT, {"rows": np.array([1], np.int32)}, ())


@pytest.mark.parametrize("shape", [(2, 0), (0, 0)])
def test_tensors_without_elements_are_not_given_to_litert(load: Load, shape: tuple[int, ...]) -> None:
    x = tf.TensorSpec([None, None], tf.float32, name="x")
    model = load(convert(lambda x: {"y": 2.0 * x}, x))
    with pytest.raises(InvalidRequest, match="LiteRT takes no inputs without elements"):
        model.run(DEFAULT, {"x": np.zeros(shape, np.float32)}, ())


def test_quantized_numbers_are_as_the_file_has_them(load: Load) -> None:
    """They are stored numbers: callers scale them."""
    dense = np.random.default_rng(1).normal(0, 1, [4, 2]).astype(np.float32)
    module = tf.Module()
    x = tf.TensorSpec([1, 4], tf.float32, name="x")
    module.call = tf.function(lambda x: {"y": x @ dense}, [x], autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.call.get_concrete_function()], module)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([np.eye(4, dtype=np.float32)[:1] * n] for n in range(-8, 8))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    content = converter.convert()
    model = load(content)
    signature = model.signatures[DEFAULT]
    assert [str(signature.inputs["x"]), str(signature.outputs["y"])] == ["int8[?,4]", "int8[?,2]"]
    rows = np.array([[1, -2, 3, 127], [0, 0, -128, 5]], np.int8)
    alone = Interpreter(model_content=content).get_signature_runner(DEFAULT)
    want = np.concatenate([alone(x=row[np.newaxis])["y"] for row in rows])
    np.testing.assert_array_equal(model.run(DEFAULT, {"x": rows}, ())["y"], want)


RISKY = {
    "FLOOR_MOD": lambda x: {"y": tf.math.floormod(x, x)},
    "REVERSE_SEQUENCE": lambda x: {"y": tf.reverse_sequence(tf.zeros([3, 4]), x, 1, 0)},
    "RANDOM_UNIFORM": lambda x: {"y": tf.random.uniform(x)},
}
SAFE = {
    "a divisor that is constant": lambda x: {"y": tf.math.floormod(x, 7)},
    "numbers without a sign that traps": lambda x: {
        "y": tf.math.floormod(tf.cast(x, tf.float32), tf.cast(x, tf.float32))
    },
    "the shape of an input": lambda x: {"y": tf.random.uniform(tf.shape(x))},
}


@pytest.mark.parametrize("name", RISKY)
def test_an_operation_that_some_values_crash_is_not_loaded_unless_allowed(name: str, tmp_path: Path) -> None:
    """Requests could end the server."""
    write(convert(RISKY[name], tf.TensorSpec([3], tf.int32, name="x")), tmp_path / "m" / "1")
    with pytest.raises(InferenceFailed, match=f"its operation {name} ends the server for some values"):
        create_runtime("litert", RuntimeOptions()).load(tmp_path / "m" / "1")
    allowing = create_runtime("litert", RuntimeOptions(allowed_operations=(name,)))
    assert allowing.load(tmp_path / "m" / "1").run(DEFAULT, {"x": np.array([1, 2, 3], np.int32)}, ())["y"].size


@pytest.mark.parametrize("name", SAFE)
def test_such_an_operation_with_operands_that_no_request_changes_is_safe(name: str, load: Load) -> None:
    load(convert(SAFE[name], tf.TensorSpec([None], tf.int32, name="x")))


def test_without_its_package_a_load_says_how_to_install_it(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    says = r"^m/1 cannot be loaded: model.tflite needs LiteRT, which is not installed: pip install 'ferry-serving\[tfl"
    with pytest.raises(InferenceFailed, match=says):
        load(image_net_of_one())
    read = offline_signatures_of("tensorflow")
    assert read is not None
    with pytest.raises(InferenceFailed, match=says):  # so says `ferry check --quick`, too
        read(tmp_path / "m" / "1", (), ())


def test_a_row_that_is_answered_by_several_is_told(load: Load) -> None:
    """The file says that its output has one row, and gives as many as there are positive numbers."""
    x = tf.TensorSpec([1, 4], tf.float32, name="x")
    content = convert(lambda x: {"found": tf.where(x[0] > 0)}, x)
    model = load(content)
    answer: Array = model.run(DEFAULT, {"x": np.array([[1, 0, 2, 3]], np.float32)}, ())["found"]
    assert answer.tolist() == [[0], [2], [3]]
