"""The shortest way from Python into a TensorFlow function.

Calling a concrete function binds arguments to names, asks for gradient tapes and packs and
unpacks structures; for a small model that takes longer than the model. `direct` goes to the
execution itself. That is not TensorFlow's public interface: `available` tries it once in a
process, and where it does not do what the public call does nobody uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

import tensorflow as tf

logger = logging.getLogger(__name__)

_Tensors = dict[str, Any]

#: From the tensors of the inputs to those of the results, both in the order of their names.
Execute = Callable[[Sequence[Any]], Sequence[Any]]


def execution(graph: Any, inputs: Sequence[str], device: str | None = None) -> Execute:
    """The quickest way to execute a concrete function from a dictionary of `inputs` to one of results.

    `device` is where, such as '/device:GPU:1'; None is where TensorFlow would. Errors are those of the public call.
    """
    return direct(graph, device) if available() else public(graph, inputs, device)


def public(function: Callable[[_Tensors], _Tensors], inputs: Sequence[str], device: str | None = None) -> Execute:
    """Calls a function by its public interface."""

    def execute(tensors: Sequence[Any]) -> Sequence[Any]:
        with tf.device(device):
            results = function(dict(zip(inputs, tensors, strict=True)))
        return [results[name] for name in sorted(results)]

    return execute


def direct(graph: Any, device: str | None = None) -> Execute:
    """Executes a concrete function without detours."""
    # Here, since a TensorFlow without them is one that is called publicly.
    from tensorflow.python import pywrap_tfe  # noqa: PLC0415
    from tensorflow.python.eager import context, core  # noqa: PLC0415

    captured = graph.captured_inputs
    own_context = context.context()
    own_context.ensure_initialized()
    # XLA's code is not Grappler's to rewrite: it has no use for the options, and reading them takes time.
    options = {} if "_XlaMustCompile" in graph.function_def.attr else own_context.function_call_options.as_attrs()
    run = partial(pywrap_tfe.TFE_Py_Execute, own_context._handle, device, graph._inference_function.name.decode())
    attributes = tuple(chain(*options.items()))
    count = len(graph.outputs)
    failure, translated = core._NotOkStatusException, core._status_to_exception

    def execute(tensors: Sequence[Any], _alive: Any = graph) -> Sequence[Any]:
        try:
            results: Sequence[Any] = run([*tensors, *captured], attributes, count)
        except failure as error:
            raise translated(error) from None
        return results

    return execute


@cache
def available() -> bool:
    """Does direct execution answer and reject as a public call does?"""
    variable = tf.Variable([1.0, 2.0])

    def scaled(tensors: _Tensors) -> _Tensors:
        tf.debugging.assert_non_negative(tensors["x"])
        return {"sum": tensors["x"] + variable, "product": tensors["x"] * tensors["factor"]}

    spec = tf.TensorSpec([None], tf.float32)
    traced = tf.function(scaled, input_signature=[{"x": spec, "factor": spec}], autograph=False)
    graph = traced.get_concrete_function()
    factor, x = tf.constant([3.0, 5.0]), tf.constant([7.0, 11.0])
    expected = public(graph, ("factor", "x"))([factor, x])
    try:
        execute = direct(graph)
        actual = execute([factor, x])
        same = [tensor.numpy().tolist() for tensor in actual] == [tensor.numpy().tolist() for tensor in expected]
        return same and _refuses(lambda: execute([factor, -x]))
    except Exception:
        logger.warning("TensorFlow's functions can only be called the long way", exc_info=True)
        return False


def _refuses(call: Callable[[], Any]) -> bool:
    try:
        call()
    except tf.errors.InvalidArgumentError:
        return True
    return False
