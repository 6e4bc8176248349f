from typing import Any

import pytest
import tensorflow as tf

from app.runtimes.tensorflow.execution import executors
from app.runtimes.tensorflow.execution.executors import available, direct, execution, public

NAMES = ("a", "b")
TENSORS = [tf.constant([1.0, 2.0]), tf.constant([4.0])]


def graph_of(body: Any, **options: Any) -> Any:
    spec = tf.TensorSpec([None], tf.float32)
    signature = [dict.fromkeys(NAMES, spec)] if not options else [{"a": tf.TensorSpec([2]), "b": tf.TensorSpec([1])}]
    return tf.function(body, input_signature=signature, autograph=False, **options).get_concrete_function()


def values(tensors: Any) -> list[Any]:
    return [tensor.numpy().tolist() for tensor in tensors]


def test_this_tensorflow_can_do_it() -> None:
    assert available()


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}])
def test_inputs_and_results_are_in_the_order_of_their_names(options: dict[str, Any]) -> None:
    variable = tf.Variable(10.0)
    graph = graph_of(lambda x: {"z": x["a"] - x["b"], "c": x["a"] * variable, "m": x["b"]}, **options)
    assert values(direct(graph)(TENSORS)) == values(public(graph, NAMES)(TENSORS)) == [[10, 20], [4], [-3, -2]]


def test_variables_are_read_at_each_call() -> None:
    variable = tf.Variable(1.0)
    execute = direct(graph_of(lambda x: {"y": x["a"] * variable}))
    assert values(execute(TENSORS)) == [[1, 2]]
    variable.assign(3.0)
    assert values(execute(TENSORS)) == [[3, 6]]


def test_the_graph_lives_as_long_as_what_executes_it() -> None:
    execute = direct(graph_of(lambda x: {"y": x["a"] + x["b"]}))
    assert values(execute(TENSORS)) == [[5, 6]]


def test_refusals_are_those_of_the_public_call() -> None:
    graph = graph_of(lambda x: {"y": tf.gather(x["a"], tf.cast(x["b"], tf.int32))})
    for execute in (direct(graph), public(graph, NAMES)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 4 is not in \[0, 2\)"):
            execute(TENSORS)


def test_a_tensorflow_without_it_is_called_publicly(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(lambda x: {"y": x["a"] + x["b"], "m": x["b"]})

    def gone(_graph: Any) -> Any:
        raise AttributeError("TFE_Py_Execute")

    def wrong(_graph: Any) -> Any:
        return lambda tensors: tensors

    for broken in (gone, wrong):
        available.cache_clear()
        monkeypatch.setattr(executors, "direct", broken)
        try:
            assert not available()
            assert values(execution(graph, NAMES)(TENSORS)) == [[4], [5, 6]]
        finally:
            available.cache_clear()
