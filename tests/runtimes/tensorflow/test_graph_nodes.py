"""The nodes of graphs that TensorFlow itself makes."""

from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow.graph_nodes import (
    bodies_of,
    branches,
    called_names,
    data_inputs,
    functions_of,
    node_of,
    with_called,
)


@tf.function(autograph=False)
def doubled(x: Any) -> Any:
    return x + x


def graph() -> Any:
    def body(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_positive(x, name="positive")]):
            return tf.cond(x > 1.0, lambda: doubled(x), lambda: x - 1.0)

    spec = tf.TensorSpec([], tf.float32)
    return tf.function(body, input_signature=[spec], autograph=False).get_concrete_function().graph.as_graph_def()


def test_a_branch_names_both_functions_and_calls_of_these_are_followed() -> None:
    made = graph()
    (choice,) = [node for node in made.node if node.op in {"If", "StatelessIf"} and "cond" in node.name]
    assert set(branches(choice)) < set(called_names(choice))
    assert set(branches(choice)) < functions_of(made).keys()
    operations = {node.op for node in with_called([choice], made)}
    assert {"AddV2", "Sub"} <= operations
    assert "Greater" not in operations


def test_each_function_is_followed_once_though_it_is_called_again() -> None:
    made = graph()
    (choice,) = [node for node in made.node if node.op in {"If", "StatelessIf"} and "cond" in node.name]
    names = [node.name for node in with_called([choice, choice], made) if node.op == "Sub"]
    assert len(names) == 1


def test_the_bodies_are_the_graph_and_all_functions_of_its_library() -> None:
    made = graph()
    assert len(bodies_of(made)) == 1 + len(made.library.function)


def test_control_inputs_are_not_read() -> None:
    node = tf.compat.v1.NodeDef(name="sum", op="AddV2", input=["x:0", "call:output:1", "^check"])
    assert data_inputs(node) == ["x:0", "call:output:1"]
    assert list(map(node_of, node.input)) == ["x", "call", "check"]
