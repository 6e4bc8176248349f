"""The facts of graphs that TensorFlow itself makes."""

from typing import Any

import tensorflow as tf

from app.core.inference import ModelSignature
from app.runtimes.tensorflow.execution.graph_facts import with_facts
from app.runtimes.tensorflow.execution.graph_fingerprint import graph_fingerprint

SIGNATURE = ModelSignature("s", {}, {})


def graph(body: Any) -> Any:
    spec = tf.TensorSpec([None, 2], tf.float32)
    return tf.function(body, input_signature=[spec], autograph=False).get_concrete_function().graph.as_graph_def()


def test_a_graph_that_only_computes_has_no_facts_but_its_fingerprint() -> None:
    made = graph(lambda x: x + 1.0)
    facts = with_facts(SIGNATURE, made)
    assert (facts, facts.fingerprint) == (SIGNATURE, graph_fingerprint(made))


def test_writes_draws_and_loops_count_within_called_functions_too() -> None:
    counter = tf.Variable(0.0)

    @tf.function(autograph=False)
    def called(x: Any) -> Any:
        counter.assign_add(1.0)
        return tf.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, y + tf.random.normal([])), (0, x))[1]

    facts = with_facts(SIGNATURE, graph(lambda x: called(x) * 2.0))
    assert (facts.writes, facts.draws, facts.loops) == (("AssignAddVariableOp",), ("RandomStandardNormal",), True)
    assert (facts.reads_files, facts.one_rank) == (False, False)
