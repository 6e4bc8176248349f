"""Uses of each operation of the tables, made by chance: `use_of`. The families are in uses_*.py.

An operation without a recipe gets operands of one shape that broadcast, as its definition says.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from app.runtimes.tensorflow.private_api import operation_definition
from tests.runtimes.tensorflow.row_proof.drawing import Draw, Use

Recipe = Callable[[Draw, str], Use]

RECIPES: dict[str, Recipe] = {}

_CALLS_FUNCTIONS = """
    PartitionedCall StatefulPartitionedCall BatchFunction If StatelessIf Case StatelessCase While StatelessWhile
    FrameLoop Switch Merge
"""
_OF_TENSORFLOW_1 = """
    TensorArrayV3 TensorArrayReadV3 TensorArrayWriteV3 TensorArrayScatterV3 TensorArrayGatherV3 TensorArraySizeV3
    VariableV2 Variable LookupTableFind LookupTableSize RefIdentity Placeholder PlaceholderWithDefault
"""

#: Operations that no use calls by itself, and why.
NOT_CALLED: dict[str, str] = {
    operation: why
    for operations, why in (
        (_CALLS_FUNCTIONS, "calls functions, or is part of a loop or branch: test_proof.py and the corpus of rows"),
        (_OF_TENSORFLOW_1, "is called in graphs of TensorFlow 1 alone: the corpus of rows"),
        ("Gelu", "TensorFlow has none; a package of its own defines it"),
        (
            "SimpleMLInferenceOp SimpleMLInferenceOpWithHandle SimpleMLInferenceLeafIndexOpWithHandle",
            "needs a forest: test_forests.py, and tests/live/libraries/test_decision_forests.py",
        ),
        ("QuantizeAndDequantize TopK", "TensorFlow refuses it in graphs that are made today"),
        ("SegmentSumV2 SegmentProdV2 SegmentMaxV2 SegmentMinV2", "TensorFlow has none for processors; XLA compiles it"),
    )
    for operation in operations.split()
}

#: Attributes that have no default and do not follow from the operands.
_ATTRIBUTES: dict[str, list[Any]] = {
    "num_buckets": [5],
    "pattern": ["a", ".*1"],
    "rewrite": ["b"],
    "message": ["no"],
    "input_encoding": ["UTF-8"],
    "output_encoding": ["UTF-16-BE", "UTF-8"],
    "key": [[1, 2]],
    "boundaries": [[-1.0, 0.0, 2.0]],
    "out_type": [tf.float32],
}

_TYPES = [tf.float32, tf.int32, tf.bool, tf.string, tf.int64, tf.complex64, tf.resource, tf.float64]


def recipe(operations: str) -> Callable[[Recipe], Recipe]:
    def enter(made: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(operations.split(), made))
        return made

    return enter


def use_of(operation: str, number: int, seed: int = 0) -> Use:
    draw = Draw([zlib.crc32(operation.encode()), number, seed])
    return RECIPES.get(operation, _by_definition)(draw, operation)


def _by_definition(d: Draw, operation: str) -> Use:
    definition = operation_definition(operation)
    assert definition is not None, operation
    shape = d.shape(0, 4)
    mode = d.one("", "positive", "unit")
    types: dict[str, Any] = {}
    inferred = {each for arg in definition.input_arg for each in (arg.type_attr, arg.number_attr, arg.type_list_attr)}
    for attr in definition.attr:
        if attr.type == "type":
            allowed = [tf.as_dtype(each) for each in attr.allowed_values.list.type]
            known = [each for each in _TYPES if not allowed or each in allowed] or allowed
            types[attr.name] = known[0] if d.chance(0.6) else d.one(*known)
    operands: dict[str, Any] = {}
    for argument in definition.input_arg:
        dtype = tf.as_dtype(argument.type) if argument.type != types_pb2.DT_INVALID else types[argument.type_attr]
        count = d.one(1, 2, 3) if argument.number_attr else 1
        shapes = [shape if not operands or d.chance(0.5) else d.beside(shape) for _ in range(count)]
        drawn = [d.tensor(each, dtype, mode=mode) for each in shapes]
        if dtype.is_integer and d.chance(0.04):
            drawn[0] = d.strange(dtype)
        operands[argument.name] = drawn if argument.number_attr else drawn[0]
    attributes = {
        attr.name: d.one(*_ATTRIBUTES[attr.name])
        for attr in definition.attr
        if attr.name not in inferred and not attr.HasField("default_value")
    }
    return d.call(operation, **operands, **attributes)
