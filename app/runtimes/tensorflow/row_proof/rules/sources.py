"""Constants, variables, tables, and random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from app.runtimes.tensorflow.graph_nodes import sizes_of
from app.runtimes.tensorflow.row_proof.abstract_values import Count, Size, Uniform, Value, all_uniform, ints_of
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import Shape
from app.runtimes.tensorflow.row_proof.rules.elementwise import broadcast
from app.runtimes.tensorflow.row_proof.rules.shaping import MAX_INTS

_WHOLE = {tf.int32.as_datatype_enum, tf.int64.as_datatype_enum, tf.bool.as_datatype_enum}

_HANDLES = {tf.resource.as_datatype_enum, tf.variant.as_datatype_enum}


def declared_shape(call: Call) -> Shape | None:
    """The shape in an attribute; open sizes in it are unknown ones."""
    sizes = sizes_of(call.attributes["shape"].shape) if "shape" in call.attributes else None
    return None if sizes is None else tuple([call.symbols.fresh() if size is None else size for size in sizes])


@rule("Const")
def constant_of(call: Call) -> Results:
    tensor = call.attributes["value"].tensor
    shape = tuple([each.size for each in tensor.tensor_shape.dim])
    return Uniform(shape, _elements(tensor, shape) if tensor.dtype in _WHOLE else None)


def _elements(tensor: Any, shape: Shape) -> tuple[int, ...] | None:
    """The elements of a small tensor of whole numbers."""
    if int(np.prod(shape)) > MAX_INTS:
        return None
    if not shape and len(tensor.int_val) == 1:  # by far the most frequent
        return (tensor.int_val[0],)
    return tuple([int(each) for each in tf.make_ndarray(tensor).flat])


@rule("Placeholder VarHandleOp VariableV2 Variable")
def declared(call: Call) -> Results:
    """A handle has the shape of its variable, of which a placeholder says nothing."""
    if call.node.op == "Placeholder" and call.attributes["dtype"].type in _HANDLES:
        return Uniform()
    return Uniform(declared_shape(call))


@rule("ReadVariableOp")
def read_variable(call: Call, handle: Value) -> Results:
    """The value of a handle has the shape of its variable."""
    return Uniform(call.shape(handle))


@rule("VariableShape")
def variable_shape(call: Call, handle: Value) -> Results:
    shape = call.shape(handle)
    return Uniform((len(shape),), shape)


@rule("LookupTableFindV2 LookupTableFind")
def look_up(call: Call, table: Value, keys: Value, default: Value) -> Results:
    """A value for each key."""
    if isinstance(keys, Size | Count):
        raise call.mixes("looks up the number of rows")
    call.uniform(table, "table"), call.uniform(default, "default")
    shape = call.shape(keys)
    if call.shape(default):
        raise call.unknown("its table holds vectors")
    if len(shape) > 1 and call.vector_keys and not isinstance(keys, Uniform):
        raise call.unknown("its table may have vectors for keys")
    return call.shaped(keys, shape)


@rule("LookupTableSizeV2 LookupTableSize")
def table_size(call: Call, table: Value) -> Results:
    return Uniform(())


# --- random numbers ---


@rule("""
    StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomNormalV2
    StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessRandomUniformInt StatelessRandomUniformIntV2
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
""")
def drawn_by_seed(call: Call, shape: Value, *others: Value) -> Results:
    """A number depends on its place among all."""
    if all_uniform(shape, *others):
        return Uniform(ints_of(shape))
    if isinstance(shape, Size):
        raise call.mixes("draws numbers that depend on the place of a row")
    raise call.unknown("it draws random numbers by values of rows")


@rule("StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomGetAlg")
def key_of_seed(call: Call, *seed: Value) -> Results:
    raise call.unknown("its seed depends on rows")


@rule("QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeV2 QuantizeAndDequantize")
def quantize(call: Call, value: Value, low: Value, high: Value, *others: Value) -> Results:
    """The quantization by a range; without one it is the range of the whole tensor."""
    if call.node.op == "QuantizeV2" or not call.flag("range_given"):
        raise call.mixes("takes the range of the whole tensor")
    if call.number("axis", -1) != -1:
        raise call.unknown("it has a range for each place of an axis")
    for each in (low, high, *others):
        if call.shape(call.uniform(each, "range")) != ():
            raise call.unknown("its range is no single number")
    return broadcast(call, value)


@rule("FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars")
def fake_quantize(call: Call, value: Value, *bounds: Value) -> Results:
    call.check_uniform("range", *bounds)
    return broadcast(call, value)


@rule("FakeQuantWithMinMaxVarsPerChannel")
def fake_quantize_channels(call: Call, value: Value, low: Value, high: Value) -> Results:
    call.check_uniform("range", low, high)
    return call.along(value, [-1], unknown="its channels lie along the rows")
