from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import Array
from app.runtimes.tensorflow.execution.graph_inlining import InlinedGraph
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import (
    ALTERNATIVES,
    FROZEN_LIMIT_MB,
    Variant,
    VariantMaker,
    VariantNotPossible,
)
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from tests.runtimes.tensorflow.execution.signature_functions import function_of, run
from tests.support import savedmodels
from tests.support.garbage import alive, no_collection

INT32 = np.dtype(np.int32)


def make(function: SignatureFunction, name: str, x: Array, limit_mb: int = FROZEN_LIMIT_MB) -> Variant:
    return VariantMaker(function.signature, function.plain, frozen_limit_mb=limit_mb).make(name, {"x": x})


def rows(*values: object, dtype: Any = np.float32) -> Array:
    return np.array(values, dtype)


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_a_variant_answers_as_plain_does(name: str) -> None:
    weights = tf.Variable(tf.reshape(tf.range(9.0), [3, 3]))
    function = function_of(lambda x: tf.nn.relu(x @ weights - 5.0))
    x = rows([1, 2, 3], [4, 5, 6])
    want = function({"x": x}, ())["y"]
    np.testing.assert_allclose(run(function, make(function, name, x).graph, {"x": x})["y"], want, rtol=1e-6)


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_a_variant_that_is_not_kept_is_freed_without_a_collection(name: str) -> None:
    weights = tf.Variable(tf.reshape(tf.range(9.0), [3, 3]))
    function = function_of(lambda x: tf.nn.relu(x @ weights - 5.0))
    x = rows([1, 2, 3], [4, 5, 6])
    with no_collection():
        before = alive(tf.Graph), alive(tf.Operation)
        run(function, make(function, name, x).graph, {"x": x})
        assert (alive(tf.Graph), alive(tf.Operation)) == before


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_an_index_beyond_the_end_is_rejected_as_ever(name: str) -> None:
    table = tf.Variable(tf.reshape(tf.range(12.0), [4, 3]))
    function = function_of(lambda x: tf.reduce_sum(tf.gather(table, x), 1), INT32)
    x = rows([0, 1, 2], dtype=np.int32)
    variant = make(function, name, x)
    assert run(function, variant.graph, {"x": x})["y"].tolist() == [[9, 12, 15]]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0,1\] = 4 is not in \[0, 4\)"):
        run(function, variant.graph, {"x": rows([0, 4, 2], dtype=np.int32)})


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_an_assertion_still_fails(name: str) -> None:
    def guarded(x: Any) -> Any:
        tf.debugging.Assert(tf.reduce_all(x < 10.0), ["too large"])
        return x * 2.0

    function = function_of(guarded)
    x = rows([1, 2, 3])
    variant = make(function, name, x)
    assert run(function, variant.graph, {"x": x})["y"].tolist() == [[2, 4, 6]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        run(function, variant.graph, {"x": rows([1, 2, 30])})


def test_a_frozen_variant_no_longer_reads_its_variables() -> None:
    factor = tf.Variable(2.0)
    function = function_of(lambda x: x * factor)
    frozen = make(function, "frozen", rows([1, 1, 1]))
    factor.assign(5.0)
    assert run(function, frozen.graph, {"x": rows([1, 1, 1])})["y"].tolist() == [[2, 2, 2]]
    assert function({"x": rows([1, 1, 1])}, ())["y"].tolist() == [[5, 5, 5]]


@pytest.mark.parametrize(("elements", "answer"), [(1, 2), (2**19, 5)])
def test_an_xla_variant_reads_only_what_is_large_or_must_not_be_frozen(elements: int, answer: float) -> None:
    factor = tf.Variable(tf.fill([elements], 2.0))
    function = function_of(lambda x: x * factor[0])
    compiled = make(function, "xla", rows([1, 1, 1]))
    factor.assign(tf.fill([elements], 5.0))
    assert run(function, compiled.graph, {"x": rows([1, 1, 1])})["y"].tolist() == [[answer] * 3]


def test_what_cannot_be_frozen_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = tf.Variable(2.0)
    function = function_of(lambda x: x * factor)

    def reject(_maker: VariantMaker) -> Variant:
        raise ValueError("a graph that cannot be rewritten")

    monkeypatch.setattr(VariantMaker, "_frozen", property(reject))
    x = rows([1, 2, 3])
    assert run(function, make(function, "xla", x).graph, {"x": x})["y"].tolist() == [[2, 4, 6]]


def test_a_table_is_looked_up_in_a_frozen_variant(tmp_path: Path) -> None:
    module = tf.Module()
    words = tf.lookup.KeyValueTensorInitializer([1, 2], ["one", "two"], tf.int32)
    module.table = tf.lookup.StaticHashTable(words, "many")
    spec = tf.TensorSpec([None], tf.int32, name="x")
    module.f = tf.function(lambda x: {"y": module.table.lookup(x)}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path), signatures=module.f)
    function = SavedModel(tmp_path)._functions["serving_default"]
    x = rows(2, 7, 1, dtype=np.int32)
    assert run(function, make(function, "frozen", x).graph, {"x": x})["y"].tolist() == [b"two", b"many", b"one"]


def test_variables_above_the_limit_are_not_frozen() -> None:
    weights = tf.Variable(tf.ones([3, 2**17]))
    function = function_of(lambda x: x @ weights)
    x = rows([1, 2, 3])
    with pytest.raises(VariantNotPossible, match="2 MB, more than the limit, 1"):
        make(function, "frozen", x, limit_mb=1)
    assert make(function, "frozen", x, limit_mb=2).name == "frozen"


@pytest.mark.parametrize(
    ("function", "x", "reason"),
    [
        (function_of(lambda x: x + 1.0, shape=(None, None)), rows([1.0]), "each shape"),
        (function_of(lambda x: tf.cast(x, tf.uint8)), rows([1, 2, 3]), "rounds"),
        (function_of(lambda x: tf.strings.as_string(x)), rows([1, 2, 3]), "no strings"),  # noqa: PLW0108 - of one argument
    ],
)
def test_xla_is_not_for_every_signature(function: SignatureFunction, x: Array, reason: str) -> None:
    with pytest.raises(VariantNotPossible, match=reason):
        make(function, "xla", x)


def test_an_xla_variant_takes_its_own_shapes_only() -> None:
    function = function_of(lambda x: x + 1.0)
    compiled = make(function, "xla", rows([1, 2, 3], [4, 5, 6]))
    assert compiled.takes(((2, 3),))
    assert not compiled.takes(((3, 3),))
    assert not compiled.takes(((2, 4),))


def test_inlining_keeps_loops_whole_and_what_they_compute(tmp_path: Path) -> None:
    savedmodels.make_slow(tmp_path)
    function = SavedModel(tmp_path)._functions["serving_default"]
    inlined = InlinedGraph(function.signature, function.plain)
    assert {node.op for node in inlined.graph.node} & {"While", "StatelessWhile"}
    x = {"steps": np.array([3, 1], np.int32)}
    assert run(function, inlined.function(), x)["done"].tolist() == function(x, ())["done"].tolist() != [0, 0]
