from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bench.gpu_parts.bfloat16 import CONVOLUTIONS, DENSE, save_bfloat16
from bench.gpu_parts.precision import UNITS, bound

RANDOM = np.random.default_rng(1)
KERNELS = [RANDOM.normal(0, 0.3, shape).astype(np.float32) for shape in ((12, 20), (20, 20), (20, 5))]


def rounded(values: Any) -> Any:
    return np.asarray(values).astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    module = tf.Module()
    module.kernels = [tf.Variable(kernel) for kernel in KERNELS]

    @tf.function(input_signature=[tf.TensorSpec([None, 12], tf.float32, name="x")])
    def call(x: Any) -> dict[str, Any]:
        first = tf.nn.tanh(x @ module.kernels[0])
        square = tf.matmul(first, first, transpose_a=True) @ module.kernels[1]  # both operands are one tensor
        return {"y": (first + tf.reduce_mean(square, 0)) @ module.kernels[2]}

    tf.saved_model.save(module, str(tmp_path / "dense"), signatures=call)
    return tmp_path / "dense"


def answer(path: Path, x: Any) -> Any:
    return tf.saved_model.load(str(path)).signatures["serving_default"](x=tf.constant(x))["y"].numpy()


def test_the_operands_of_each_product_are_rounded_and_nothing_else(dense: Path, tmp_path: Path) -> None:
    assert save_bfloat16(dense, tmp_path / "copy") == 4
    x = RANDOM.normal(0, 1, (7, 12)).astype(np.float32)
    first = np.tanh(rounded(rounded(x) @ rounded(KERNELS[0])))
    square = rounded(rounded(rounded(first).T @ rounded(first)) @ rounded(KERNELS[1]))
    expected = rounded(rounded(first + square.mean(0)) @ rounded(KERNELS[2]))
    found = answer(tmp_path / "copy", x)
    assert np.abs(found - expected).max() <= 2**-6 * np.abs(expected).max()  # sums may round otherwise
    exact = answer(dense, x)
    apart = np.abs(found - exact).max() / np.abs(exact).max()
    assert 0 < apart <= bound(UNITS["bfloat16"], 4)


def test_weights_are_rounded_in_the_copy_not_in_each_call(dense: Path, tmp_path: Path) -> None:
    save_bfloat16(dense, tmp_path / "copy")
    graph = tf.saved_model.load(str(tmp_path / "copy")).signatures["serving_default"].graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    halves = [node for node in nodes if node.op == "Const" and node.attr["dtype"].type == tf.bfloat16.as_datatype_enum]
    assert sorted(tuple(d.size for d in n.attr["value"].tensor.tensor_shape.dim) for n in halves) == [
        (12, 20), (20, 5), (20, 20),
    ]  # fmt: skip


def test_convolutions_are_rounded_if_they_are_named(tmp_path: Path) -> None:
    module, kernel = tf.Module(), RANDOM.normal(0, 0.3, (3, 3, 2, 4)).astype(np.float32)
    module.kernel = tf.Variable(kernel)
    call = tf.function(
        lambda x: {"y": tf.nn.conv2d(x, module.kernel, 1, "SAME")},
        input_signature=[tf.TensorSpec([None, 5, 5, 2], tf.float32, name="x")],
    )
    module.call = call
    tf.saved_model.save(module, str(tmp_path / "plain"), signatures=call)
    assert save_bfloat16(tmp_path / "plain", tmp_path / "dense", DENSE) == 0
    assert save_bfloat16(tmp_path / "plain", tmp_path / "copy", DENSE + CONVOLUTIONS) == 1
    x = RANDOM.normal(0, 1, (2, 5, 5, 2)).astype(np.float32)
    expected = rounded(tf.nn.conv2d(rounded(x), rounded(kernel), 1, "SAME"))
    assert np.abs(answer(tmp_path / "copy", x) - expected).max() <= 2**-7 * np.abs(expected).max()


def test_a_model_without_products_is_copied_as_it_is(tmp_path: Path) -> None:
    module = tf.Module()
    call = tf.function(lambda x: {"y": x * 2}, input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    module.call = call
    tf.saved_model.save(module, str(tmp_path / "plain"), signatures=call)
    assert save_bfloat16(tmp_path / "plain", tmp_path / "copy", DENSE + CONVOLUTIONS) == 0
    x = RANDOM.normal(0, 1, (2, 3)).astype(np.float32)
    np.testing.assert_array_equal(answer(tmp_path / "copy", x), 2 * x)


def test_the_bound_grows_with_the_products_and_with_the_unit() -> None:
    assert bound(2**-9, 4) > bound(2**-11, 4) > bound(2**-11, 1) > 1e-4
