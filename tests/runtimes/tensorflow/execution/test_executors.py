"""A function is executed directly and by the public call with the same results and errors."""

from typing import Any

import pytest
import tensorflow as tf

from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.execution.executors import make_executor, public_executor
from app.runtimes.tensorflow.private_api import direct_executor

NAMES = ("a", "b")
TENSORS = [tf.constant([1.0, 2.0]), tf.constant([4.0])]


def graph_of(body: Any, **options: Any) -> Any:
    spec = tf.TensorSpec([None], tf.float32)
    signature = [dict.fromkeys(NAMES, spec)] if not options else [{"a": tf.TensorSpec([2]), "b": tf.TensorSpec([1])}]
    return tf.function(body, input_signature=signature, autograph=False, **options).get_concrete_function()


def values(tensors: Any) -> list[Any]:
    return [tensor.numpy().tolist() for tensor in tensors]


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}])
def test_inputs_and_results_are_in_the_order_of_their_names(options: dict[str, Any]) -> None:
    variable = tf.Variable(10.0)
    graph = graph_of(lambda x: {"z": x["a"] - x["b"], "c": x["a"] * variable, "m": x["b"]}, **options)
    direct, public = direct_executor(graph), public_executor(graph, NAMES)
    assert values(direct(TENSORS)) == values(public(TENSORS)) == [[10, 20], [4], [-3, -2]]


def test_variables_are_read_at_each_call() -> None:
    variable = tf.Variable(1.0)
    execute = direct_executor(graph_of(lambda x: {"y": x["a"] * variable}))
    assert values(execute(TENSORS)) == [[1, 2]]
    variable.assign(3.0)
    assert values(execute(TENSORS)) == [[3, 6]]


def test_the_graph_lives_as_long_as_its_executor() -> None:
    execute = direct_executor(graph_of(lambda x: {"y": x["a"] + x["b"]}))
    assert values(execute(TENSORS)) == [[5, 6]]


def test_errors_are_those_of_the_public_call() -> None:
    graph = graph_of(lambda x: {"y": tf.gather(x["a"], tf.cast(x["b"], tf.int32))})
    for execute in (direct_executor(graph), public_executor(graph, NAMES)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 4 is not in \[0, 2\)"):
            execute(TENSORS)


@pytest.mark.parametrize("works", [True, False])
def test_functions_are_executed_directly_only_where_that_works(monkeypatch: pytest.MonkeyPatch, *, works: bool) -> None:
    made: list[Any] = []
    monkeypatch.setattr(private_api, "works", lambda feature: works and feature == private_api.DIRECT_EXECUTION)
    monkeypatch.setattr(private_api, "direct_executor", lambda *given: made.append(given) or direct_executor(*given))
    graph = graph_of(lambda x: {"y": x["a"] + x["b"], "m": x["b"]})
    assert values(make_executor(graph, NAMES)(TENSORS)) == [[4], [5, 6]]
    assert len(made) == works
