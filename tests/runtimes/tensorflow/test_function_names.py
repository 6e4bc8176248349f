from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow.function_names import PREFIX, name_functions
from app.runtimes.tensorflow.graph_nodes import called_in


def looping(steps: int, scale: float) -> Any:
    """The GraphDef of a loop with a branch in it, with functions that nothing calls."""

    def step(count: Any, x: Any) -> Any:
        return count + 1, tf.cond(x[0] > 9.0, lambda: x, lambda: scale * x)

    def call(x: Any) -> Any:
        return tf.while_loop(lambda count, _: count < steps, step, (0, x))[1]

    graph = tf.function(call, input_signature=[tf.TensorSpec([None])]).get_concrete_function().graph.as_graph_def()
    uncalled = graph.library.function.add()
    uncalled.signature.name = "uncalled_1"
    return graph


def called(graph: Any) -> set[str]:
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return {each.name for node in nodes for each in called_in(node)}


def test_functions_of_equal_graphs_get_equal_names_whatever_was_made_before() -> None:
    first, again, other = looping(3, 0.5), looping(3, 0.5), looping(3, 0.25)
    assert called(first) != called(again)
    for graph in (first, again, other):
        renamed = name_functions(graph)
        names = [function.signature.name for function in renamed]
        assert called(graph) == set(names)
        assert all(name.startswith(PREFIX) for name in names)
        assert sorted(function.signature.name for function in graph.library.function) == sorted([*names, "uncalled_1"])
    assert called(first) == called(again) != called(other)


def test_a_function_that_calls_itself_has_a_name_too() -> None:
    graph = looping(1, 1.0)
    del graph.library.function[:]
    function = graph.library.function.add()
    function.signature.name = "again_7"
    function.node_def.add(name="call", op="again_7")
    del graph.node[:]
    graph.node.add(name="begin", op="again_7")
    (renamed,) = name_functions(graph)
    assert graph.node[0].op == renamed.signature.name
    assert renamed.signature.name.startswith(PREFIX)
