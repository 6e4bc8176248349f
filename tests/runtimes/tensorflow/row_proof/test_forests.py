"""The rules of decision forests, in graphs that are written by hand: their library need not be installed.

tests/live/libraries/test_decision_forests.py has real models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import tensorflow as tf

from app.core.graph_rows import GraphRows
from app.runtimes.tensorflow.execution.operations import takes_one_rank, writing_operations
from app.runtimes.tensorflow.row_proof.proof import prove_rows

_HANDLE, _LEAVES = "SimpleMLInferenceOpWithHandle", "SimpleMLInferenceLeafIndexOpWithHandle"
_EMPTY = {"numerical": tf.float32, "boolean": tf.float32, "categorical": tf.int32}


def _forest(features: Sequence[str], operation: str = _HANDLE, sets: str = "none") -> Any:
    """A forest that reads these nodes as its three matrices, and no sets of categories."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        tf.stack([x, x + 1], axis=1, name="two")
        tf.stack([x, x], axis=0, name="columns")
        tf.reshape(tf.stack([x, x], axis=0), [-1, 1], name="both")
        tf.reduce_max(tf.stack([x, x], axis=1), axis=0, keepdims=True, name="greatest")
        tf.cast(tf.expand_dims(x, 1), tf.int32, name="kind")
        tf.ones([3, 2], name="three")
        for name, dtype in _EMPTY.items():
            tf.zeros([0, 0], dtype, name=name)
        tf.zeros([0], tf.int32, name="none")
        tf.zeros([1], tf.int64, name="splits")
        tf.cast(x, tf.int32, name="words")
        tf.compat.v1.placeholder(tf.resource, [], name="model")
    definition = graph.as_graph_def()
    node = definition.node.add(op=operation, name="forest")
    node.input.extend([*features, sets, "splits", "splits"])
    if operation != "SimpleMLInferenceOp":
        node.input.append("model")
    if operation != _LEAVES:
        node.attr["dense_output_dim"].i = 3
    return definition


def _proof(definition: Any) -> GraphRows:
    outputs = {"first": "forest:0", "second": "forest:1"}
    return prove_rows(definition, {"x": "x:0"}, outputs, {"x": [None]})


def _verdict(*features: str, operation: str = _HANDLE, sets: str = "none") -> str:
    return _proof(_forest(features, operation, sets)).outputs["first"].verdict


@pytest.mark.parametrize("operation", [_HANDLE, _LEAVES, "SimpleMLInferenceOp"])
def test_each_example_is_walked_by_itself(operation: str) -> None:
    assert _verdict("two", "boolean", "categorical", operation=operation) == "proven"
    assert _verdict("numerical", "boolean", "kind", operation=operation) == "proven"
    assert _verdict("two", "two", "kind", operation=operation) == "proven"


def test_the_names_of_its_outputs_are_the_same_for_all() -> None:
    assert _proof(_forest(["two", "boolean", "categorical"])).outputs["second"].verdict == "no rows"


@pytest.mark.parametrize("features", ["columns", "both", "x"])
def test_examples_that_are_not_one_for_each_row_are_not_known(features: str) -> None:
    assert _verdict(features, "boolean", "categorical") == "unknown"


def test_features_that_mix_rows_are_told_as_that() -> None:
    assert _verdict("greatest", "boolean", "categorical") == "mixes"


def test_features_that_are_the_same_for_all_have_no_rows() -> None:
    assert _verdict("two", "three", "categorical") == "unknown"
    assert _verdict("numerical", "boolean", "categorical") != "proven"


def test_sets_of_categories_that_depend_on_rows_are_not_followed() -> None:
    assert _verdict("two", "boolean", "categorical", sets="words") == "unknown"


def test_a_forest_writes_nothing_and_takes_one_rank() -> None:
    """Its kernel ends the process at features of another rank."""
    definition = _forest(["two", "boolean", "categorical"])
    assert writing_operations(definition) == []
    assert takes_one_rank(definition)
