"""Each operation of the tables, with operands of every kind that it takes: the proof fails at none of them.

The uses are made by a machine: for each operand rows as they come, turned round, with one axis more, sums, sizes, and
constants of several ranks. Most are nonsense, and many are rejected.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2, types_pb2

from app.runtimes.tensorflow.private_api import operation_definition
from app.runtimes.tensorflow.row_proof import rules
from app.runtimes.tensorflow.row_proof.call import RULES
from tests.runtimes.tensorflow.row_proof.proving import proof_of, spec, traced

#: Uses of an operation. Chosen: all of these take half a minute.
_USES = 8

#: Attributes that have no default and do not follow from the operands.
_ATTRIBUTES: dict[str, list[Any]] = {
    "DstT": [tf.int32, tf.float64],
    "T": [tf.float32, tf.int32],
    "dtype": [tf.float32],
    "type": [tf.float32],
    "out_type": [tf.int32],
    "Tout": [tf.int32],
    "strides": [[1, 1, 1, 1], [1, 2, 2, 1]],
    "ksize": [[1, 2, 2, 1], [2, 1, 1, 1]],
    "padding": ["SAME", "VALID"],
    "rates": [[1, 1, 1, 1]],
    "ksizes": [[1, 2, 2, 1]],
    "block_size": [2],
    "num_split": [2],
    "num": [2, 4],
    "N": [2],
    "axis": [0, 1, -1],
    "paddings": [[1, 1]],
    "mode": ["REFLECT"],
    "equation": ["ij,ij->ij", "ij,kj->ik", "ij,kj->ki", "ij,ij->j"],
    "num_buckets": [5],
    "pattern": ["a"],
    "rewrite": ["b"],
    "shape": [[2, 4], []],
    "depth_radius": [2],
    "num_bits": [8],
    "message": ["no"],
    "element_dtype": [tf.float32],
    "shape_type": [tf.int32],
}

#: Those that also vary although they have a default.
_VARIED = {"axis": [0, 1, -1], "keep_dims": [True], "transpose_a": [True], "transpose_b": [True], "adj_x": [True],
           "exclusive": [True], "reverse": [True], "batch_dims": [1], "is_training": [True, False], "sorted": [True],
           "begin_mask": [1], "end_mask": [1, 3], "shrink_axis_mask": [1, 2], "new_axis_mask": [1, 2],
           "squeeze_dims": [[1], [0]], "ellipsis_mask": [1]}  # fmt: skip


def _operands(dtype: Any, x: Any, words: Any) -> list[Any]:
    """Tensors of a type: of rows, of constants, of sizes."""
    count = tf.shape(x)[0]
    if dtype == tf.string:
        return [words, tf.constant("a"), tf.constant(["a", "b c"]), tf.strings.join([words, words]), words[:, None]]
    if dtype == tf.bool:
        return [x > 0, tf.transpose(x > 0), tf.constant(True), x[:, 0] > 0, tf.reduce_any(x > 0)]
    if dtype.is_integer:
        whole = [
            0, 1, -1, [0], [1], [0, 1], [1, 0], [-1, 4], [-1, 2], [2, 1], [1, 2], [4], [0, 0], [1, 1], [[0, 0], [1, 1]],
            [[0, 0], [0, 1]], count, [count, 4], [count, -1], [4, count], [count, 2, 2], count - 1, [count - 1],
            tf.range(count), tf.cast(x[:, 0], tf.int32) % 2, tf.cast(x, tf.int32), tf.shape(x), [0, 0, 0, 0],
            tf.stack([tf.range(count), tf.zeros([count], tf.int32)], 1), [0, 2, 1], 4, 2,
        ]  # fmt: skip
        return [tf.cast(each, dtype) for each in whole]
    floating = [
        x, tf.transpose(x), x[:, None], x[None], tf.reshape(x, [-1, 2, 2]), x[:, 0], tf.zeros([4]), tf.ones([1, 4]),
        tf.ones([2, 1, 4]), tf.ones([4, 4]), 2.0, tf.reduce_mean(x, 0), tf.reduce_mean(x), tf.reshape(x, [-1, 1, 2, 2]),
        tf.ones([2, 2, 2, 2]), tf.ones([1, 1, 2, 2]), tf.transpose(tf.reshape(x, [-1, 2, 2]), [1, 0, 2]), -1.5,
        tf.cast(count, tf.float32), tf.ones([count, 4]), tf.reshape(x, [-1]), tf.ones([2]),
    ]  # fmt: skip
    return [tf.cast(each, dtype) for each in floating]


def _types(definition: op_def_pb2.OpDef, argument: Any, chosen: dict[str, Any]) -> list[Any]:
    """The types that an operand may have; those of a type attribute are chosen once."""
    if argument.type != types_pb2.DT_INVALID:
        return [tf.as_dtype(argument.type)]
    if argument.type_attr in chosen:
        return [chosen[argument.type_attr]]
    attr = next(each for each in definition.attr if each.name == argument.type_attr)
    allowed = [tf.as_dtype(each) for each in attr.allowed_values.list.type]
    wanted = [tf.float32, tf.int32, tf.bool, tf.string]
    return [each for each in wanted if not allowed or each in allowed] or allowed[:1]


def _attributes(definition: op_def_pb2.OpDef, rng: np.random.Generator) -> dict[str, Any] | None:
    """Values of the attributes that must be given, and of some others; None if one is not known."""
    inferred = {each for arg in definition.input_arg for each in (arg.type_attr, arg.number_attr, arg.type_list_attr)}
    found: dict[str, Any] = {}
    for attr in definition.attr:
        if attr.name in inferred or attr.name.startswith("_"):
            continue
        if not attr.HasField("default_value"):
            if attr.name not in _ATTRIBUTES:
                return None
            options = _ATTRIBUTES[attr.name]
            found[attr.name] = options[rng.integers(len(options))]
        elif attr.name in _VARIED and rng.random() < 0.5:
            options = _VARIED[attr.name]
            found[attr.name] = options[rng.integers(len(options))]
    return found


def _uses(operation: str) -> Iterator[Any]:
    """Functions of rows and words that call the operation with operands drawn by chance."""
    definition = operation_definition(operation)
    make = getattr(tf.raw_ops, operation, None)
    if definition is None or make is None:
        return
    rng = np.random.default_rng(zlib.crc32(operation.encode()))
    for _ in range(_USES):
        attributes = _attributes(definition, rng)
        if attributes is None:
            return
        seed = int(rng.integers(1 << 31))

        def use(x: Any, words: Any, attributes: Any = attributes, seed: int = seed) -> list[Any]:
            draw, chosen, operands = np.random.default_rng(seed), {}, {}
            for argument in definition.input_arg:
                types = _types(definition, argument, chosen)
                dtype = types[0] if draw.random() < 0.7 else types[draw.integers(len(types))]
                if argument.type_attr:
                    chosen[argument.type_attr] = dtype
                pool = _operands(dtype, x, words)
                several = 2 if argument.number_attr else 1
                drawn = [pool[int(len(pool) * draw.random() ** 2)] for _ in range(several)]
                operands[argument.name] = drawn if argument.number_attr else drawn[0]
            results = make(**operands, **attributes)
            dense = [each for each in tf.nest.flatten(results) if isinstance(each, tf.Tensor)]
            return [tf.identity(each) for each in dense if each.dtype not in {tf.variant, tf.resource}]

        yield use


_SPECS = (spec(None, 4), spec(None, dtype=tf.string))


def test_the_tables_are_loaded() -> None:
    assert rules.ALL_FAMILIES
    assert len(RULES) > 300


@pytest.mark.parametrize("part", range(8))
def test_the_proof_says_something_of_any_use_of_an_operation_and_fails_at_none(
    part: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The uses are not called: some of them end the process (other tests compare those that make sense with calls)."""
    said = set()
    for operation in sorted(RULES)[part::8]:
        for use in _uses(operation):
            try:
                concrete = traced(use, *_SPECS)
            except (ValueError, TypeError, tf.errors.OpError, IndexError, NotImplementedError, StopIteration):
                continue  # operands that the operation does not take
            if concrete.outputs:
                said |= {each.verdict for each in proof_of(concrete, _SPECS).outputs.values()}
    assert {"proven", "mixes", "unknown"} <= said
    assert caplog.text == ""
