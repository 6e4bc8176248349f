"""Small functions, what the proof says of their rows, and what real calls say: the oracle of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.graph_rows import GraphRows
from app.core.inference import Array
from app.runtimes.tensorflow.row_proof.proof import prove_rows

#: Rows of the requests that share a call.
SIZES = ((1, 1), (1, 2), (2, 3), (3, 1), (7, 1), (1, 7))


def spec(*shape: int | None, dtype: Any = tf.float32) -> Any:
    return tf.TensorSpec(shape, dtype)


def traced(function: Callable[..., Any], *specs: Any) -> Any:
    """A concrete function; its tensors are its inputs in order."""
    return tf.function(function, input_signature=specs, autograph=False).get_concrete_function()


def proof_of(concrete: Any, specs: Sequence[Any]) -> GraphRows:
    """What its graph says. Inputs are i0, i1, ...; outputs are o0, o1, ..."""
    shape_of = {id(variable.handle): variable.shape.as_list() for variable in concrete.graph.variables}
    captured = concrete.graph.captures
    return prove_rows(
        concrete.graph.as_graph_def(),
        {f"i{n}": tensor.name for n, tensor in enumerate(concrete.inputs[: len(specs)])},
        {f"o{n}": tensor.name for n, tensor in enumerate(concrete.outputs)},
        {f"i{n}": None if each.shape.rank is None else each.shape.as_list() for n, each in enumerate(specs)},
        variables={inner.op.name: shape_of[id(outer)] for outer, inner in captured if id(outer) in shape_of},
        vector_keys=False,
    )


def prove(function: Callable[..., Any], *specs: Any) -> GraphRows:
    return proof_of(traced(function, *specs), specs)


def verdicts(rows: GraphRows) -> list[str]:
    return [each.verdict for each in rows.outputs.values()]


def operations_in(concrete: Any) -> set[str]:
    graph = concrete.graph.as_graph_def()
    bodies: Iterable[Any] = (graph.node, *[function.node_def for function in graph.library.function])
    return {node.op for body in bodies for node in body}


def drawn(rng: np.random.Generator, each: Any, rows: int) -> Array:
    """Values of a spec: halves, whose sums are exact; small whole numbers; words."""
    shape = tuple(
        rows if size is None and axis == 0 else 3 if size is None else size for axis, size in enumerate(each.shape)
    )
    if each.dtype == tf.string:
        words = np.array([b"a", b"b c", b"a b c", b"12", b"7"], object)
        return words[rng.integers(0, len(words), shape)]
    if each.dtype == tf.bool:
        return rng.integers(0, 2, shape).astype(bool)
    if each.dtype.is_integer:
        return rng.integers(0, 3, shape).astype(each.dtype.as_numpy_dtype)
    return (rng.integers(-8, 9, shape) / 2).astype(each.dtype.as_numpy_dtype)


def differing(concrete: Any, specs: Sequence[Any], seed: int = 0, draw: Callable[..., Array] = drawn) -> set[str]:
    """The outputs of which rows differ when two requests share a call. A call that is rejected is no answer."""
    rng = np.random.default_rng(seed)
    found = set()
    for sizes in SIZES * 2:
        requests = [[draw(rng, each, rows) for each in specs] for rows in sizes]
        shared = [len(each.shape) == 0 or each.shape[0] is not None for each in specs]
        both = [
            requests[0][n] if shared[n] else np.concatenate([each[n] for each in requests]) for n in range(len(specs))
        ]
        requests = [[requests[0][n] if shared[n] else each[n] for n in range(len(specs))] for each in requests]
        try:
            apart, together = [_called(concrete, each) for each in requests], _called(concrete, both)
        except tf.errors.OpError:
            continue
        for n, answer in enumerate(together):
            if not _alike(answer, [each[n] for each in apart]):
                found.add(f"o{n}")
    return found


def _called(concrete: Any, inputs: Sequence[Array]) -> list[Array]:
    results = concrete(*[tf.constant(each) for each in inputs])
    return [each.numpy() for each in tf.nest.flatten(results)]


def _alike(together: Array, apart: Sequence[Array]) -> bool:
    if any(each.ndim == 0 or each.shape[1:] != together.shape[1:] for each in apart):
        return False
    joined = np.concatenate(apart)
    if joined.shape != together.shape:
        return False
    if joined.dtype.kind in {"O", "b"}:
        return bool((joined == together).all())
    return bool(np.allclose(joined, together, rtol=1e-4, atol=1e-5, equal_nan=True))
