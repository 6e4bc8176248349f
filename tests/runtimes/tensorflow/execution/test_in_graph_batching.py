"""Graphs that batch by themselves. Their own batching waits half an hour, so that what still waits never ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.errors import InvalidRequest
from app.runtime import RuntimeOptions
from app.runtimes.tensorflow.execution.in_graph_batching import batches
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime

#: The most that 32 bits hold.
HALF_AN_HOUR_US = 2**31 - 1

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def batched(body: Callable[[Any], Any], sizes: tuple[int, ...] = (64,)) -> Any:
    """The function in a BatchFunction. Padding to 64 rows would show in sums of rows."""
    return tf.nondifferentiable_batch_function(1, 64, HALF_AN_HOUR_US, list(sizes))(body)


class Plain(tf.Module):
    """A variable, a table, and two outputs of which each has a batch function of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5))
        keys, values = tf.constant([0, 1, 2], tf.int64), tf.constant([10.0, 20.0, 30.0])
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1.0)
        self.dense = batched(lambda x: tf.tanh(tf.matmul(x, self.w)))
        self.found = batched(lambda x: self.table.lookup(tf.cast(x[:, 0], tf.int64)))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serve(self, x: Any) -> Any:
        return {"dense": self.dense(x) * 2.0, "found": self.found(x)}

    @staticmethod
    def expected(module: Any, x: Any) -> dict[str, Any]:
        return {
            "dense": 2 * np.tanh(x @ module.w.numpy()),
            "found": [{0: 10.0, 1: 20.0, 2: 30.0}.get(int(each), -1.0) for each in x[:, 0]],
        }


class InBranches(tf.Module):
    """The batch function in a branch, in a loop, and in another function."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([1.0, 2.0, 3.0, 4.0])
        self.inner = batched(lambda x: x * self.w)
        self.shaped = lambda x: tf.ensure_shape(self.inner(x), [None, 4])
        self.nested = tf.function(lambda x: self.inner(x) + 1.0, autograph=False)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")], autograph=False)
    def serve(self, x: Any) -> Any:
        positive = tf.cond(tf.reduce_all(x > 0.0), lambda: self.inner(x), lambda: self.nested(x))
        turns = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, self.shaped(y)), [0, x])[1]
        return {"y": positive, "z": turns}

    @staticmethod
    def expected(module: Any, x: Any) -> dict[str, Any]:
        w = module.w.numpy()
        return {"y": x * w + (0 if (x > 0).all() else 1), "z": x * w**3}


@pytest.fixture(params=[Plain, InBranches])
def module(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def loaded(module: Any, tmp_path: Path) -> Any:
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.serve)
    model = TensorFlowRuntime(RuntimeOptions()).load(tmp_path / "1")
    yield model
    model.close()


def test_calls_are_answered_without_waiting_for_others(module: Any, loaded: SavedModel) -> None:
    for rows in (1, 3, 70):
        x = np.resize(X, (rows, 4))
        answer, wanted = loaded.run("serving_default", {"x": x}, ()), module.expected(module, x)
        assert answer.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_allclose(answer[name], array, rtol=1e-5)
            np.testing.assert_allclose(loaded.run("serving_default", {"x": x}, (name,))[name], array, rtol=1e-5)


def test_nothing_that_is_executed_batches(loaded: SavedModel) -> None:
    graph = loaded._functions["serving_default"].plain.graph.as_graph_def()
    assert not batches(graph)
    signature = loaded.signatures["serving_default"]
    assert signature.batchable
    assert not signature.writes


def test_shapes_that_are_not_declared_are_refused_and_do_not_wait(loaded: SavedModel) -> None:
    with pytest.raises(InvalidRequest, match=r"Input 'x' has shape \[3\]; expected \[\?,4\]"):
        loaded.run("serving_default", {"x": np.ones(3, np.float32)}, ())
