from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import Array, ModelSignature, TensorSpec
from app.runtimes.tensorflow.execution.graph_inlining import trace
from app.runtimes.tensorflow.execution.signature_function import MAX_GRAPHS, SignatureFunction
from app.runtimes.tensorflow.execution.variant import FROZEN, Variant
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from tests.support import savedmodels

FLOAT32 = np.dtype(np.float32)


class CountedTraces:
    """A signature's function with many outputs that counts how often TensorFlow traced it."""

    def __init__(self, outputs: int) -> None:
        self.names = [f"y{n}" for n in range(outputs)]
        self.traces = 0

    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        self.traces += 1
        return {name: x + float(name[1:]) for name in self.names}

    @property
    def signature(self) -> ModelSignature:
        specs = {name: TensorSpec(name, FLOAT32, (None,)) for name in self.names}
        return ModelSignature("s", {"x": TensorSpec("x", FLOAT32, (None,))}, specs)


ONE = {"x": np.ones(1, np.float32)}


def test_each_set_of_outputs_is_traced_once_whatever_its_order() -> None:
    counted = CountedTraces(3)
    function = SignatureFunction(counted.signature, counted)
    for wanted in [(), ("y0", "y1"), ("y1", "y0"), ("y0", "y1", "y2"), (), ("y0", "y1")]:
        assert tuple(function(ONE, wanted)) == (wanted or ("y0", "y1", "y2"))
    assert counted.traces == 2


def test_graphs_are_bounded_and_answers_right_beyond_the_bound() -> None:
    counted = CountedTraces(MAX_GRAPHS + 4)
    function = SignatureFunction(counted.signature, counted)
    for _ in range(2):
        for number, name in enumerate(counted.names):
            assert function(ONE, (name,))[name].tolist() == [1.0 + number]
    assert counted.traces == MAX_GRAPHS


def run_tf1(path: Path, x: Array, outputs: tuple[str, ...]) -> dict[str, Array]:
    savedmodels.make_tf1(path)
    return SavedModel(path).run("serving_default", {"images/x": x}, outputs)


def test_an_assertion_on_the_path_of_an_unwanted_output_does_not_run(tmp_path: Path) -> None:
    too_much = np.array([[100]], np.float32)
    assert run_tf1(tmp_path, too_much, ("scaled",))["scaled"].tolist() == [[300]]


def test_and_does_on_the_path_of_a_wanted_one(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="x must be below 10"):
        run_tf1(tmp_path, np.array([[100]], np.float32), ("guarded",))


def test_an_expensive_output_that_is_not_wanted_costs_nothing() -> None:
    calls = []

    def observe(x: Array) -> Array:
        calls.append(1)
        return x

    def both(x: tf.Tensor) -> dict[str, tf.Tensor]:
        seen = tf.numpy_function(observe, [x], tf.float32, stateful=False)
        return {"y0": x, "y1": tf.ensure_shape(seen, [None])}

    function = SignatureFunction(CountedTraces(2).signature, both)
    function(ONE, ("y0",))
    assert not calls
    function(ONE, ())
    assert calls


def test_answers_are_the_callers_own_memory() -> None:
    table = tf.Variable([1.0, 2.0])
    function = SignatureFunction(CountedTraces(1).signature, lambda x: {"y0": table.read_value()})
    answer = function(ONE, ())["y0"]
    table.assign([5.0, 6.0])
    assert answer.tolist() == [1, 2]
    answer[:] = 9
    assert function(ONE, ())["y0"].tolist() == [5, 6]


def test_a_variant_for_some_rows_runs_ragged_calls_of_so_many_rows() -> None:
    specs = {"x": TensorSpec("x", FLOAT32, (None,)), "x_1": TensorSpec("x_1", np.dtype(np.int64), (None,))}
    signature = ModelSignature("s", specs, {"y": TensorSpec("y", FLOAT32, (None,))}, ragged={"x": ("x_1",)})
    function = SignatureFunction(signature, lambda x, x_1: {"y": tf.ones([tf.size(x_1) - 1]) + 0 * x[0]})
    shapes = {name: spec.shape for name, spec in specs.items()}
    variant = trace(lambda tensors: {"y": tf.zeros([tf.size(tensors["x_1"]) - 1])}, shapes, signature)
    function.use({2: Variant(FROZEN, variant)})
    values = np.ones(5, np.float32)
    assert function({"x": values, "x_1": np.array([0, 1, 5])}, ())["y"].tolist() == [0, 0]
    assert function({"x": values[:2], "x_1": np.array([0, 2])}, ())["y"].tolist() == [1]
