"""The splitting of large dense layers of a graph over devices, without an exchange between the two of a pair.

    act(x @ W + b) @ V  =  sum over devices d of  act(x @ W[:, d] + b[d]) @ V[d, :]

Rules
1. A MatMul with large weights is split by columns: each device has some columns of the weights, and of the result.
2. Elementwise operations on split columns run on the devices of the columns. Vectors of their width are split, too.
3. A MatMul with large weights that reads split columns is split by rows: each device has the rows for its columns, and
   the results are added on the first device.
4. Any other node reads all columns, concatenated under the name of the node that computed them.

M. Shoeybi et al.: Megatron-LM, training multi-billion parameter language models using model parallelism, 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.runtimes.tensorflow.graph_nodes import data_inputs, names, node_of

#: Their results have the shape of the first input, and each element follows from the same element of that input.
_OF_EACH_ELEMENT = names("""
    Abs Cast Ceil Cos Elu Erf Erfc Exp Expm1 Floor Identity Inv LeakyRelu Log Log1p Neg Reciprocal Relu Relu6 Rint Round
    Rsqrt Selu Sigmoid Sign Sin Softplus Softsign Sqrt Square StopGradient Tanh
""")

#: Elementwise operations of two inputs, one of which may be a vector for all rows, or one number.
_OF_TWO_ELEMENTS = names("""
    Add AddV2 BiasAdd Div DivNoNan Maximum Minimum Mul Pow RealDiv SquaredDifference Sub
""")

#: Attributes that hold facts of the whole tensor, or of nodes beside it.
_STALE_ATTRIBUTES = ("_class", "_output_shapes")


class CannotShard(ValueError):
    """A model cannot be split; the text gives the reason and the expected form."""


class VariablePart(NamedTuple):
    """A variable to make: the placeholder of its handle, its value, and its device."""

    handle: str
    value: Array
    device: str


class SplitLayer(NamedTuple):
    """A MatMul that was split: its name, the shape and bytes of its weights, and whether by columns or by rows."""

    name: str
    shape: tuple[int, ...]
    bytes: int
    by: str


class GraphSharding:
    """The rewriting of one GraphDef without calls.

    Args:
        value_of: the value of the variable whose handle a placeholder holds; None for any other placeholder.
        devices: such as 'GPU:0'; results are put together on the first.
        min_bytes: smaller weights stay whole.

    Attributes:
        graph: the rewritten graph.
        parts: the variables that it needs beside those of the original.
    """

    def __init__(
        self, graph: Any, value_of: Callable[[str], Array | None], devices: Sequence[str], min_bytes: float
    ) -> None:
        self._nodes = {node.name: node for node in graph.node}
        _bypass_identities(self._nodes)
        self._value_of = value_of
        self._devices = devices
        self._min_bytes = min_bytes
        self._widths: dict[str, tuple[int, ...]] = {}  # the widths of parts, by node whose columns are split
        self._reads: dict[tuple[str, int, tuple[int, ...]], list[str]] = {}
        self.parts: list[VariablePart] = []
        self.layers: list[SplitLayer] = []
        self.graph = tf.compat.v1.GraphDef(library=graph.library, versions=graph.versions)
        for name in self._in_order():
            self._add(self._nodes[name])

    def _in_order(self) -> list[str]:
        """The names of the nodes, a node after its operands."""
        givers = {name: {node_of(each) for each in node.input} for name, node in self._nodes.items()}
        try:
            return list(TopologicalSorter(givers).static_order())
        except CycleError:
            raise CannotShard("its graph has loops of TensorFlow 1 (Enter, Exit); expected tf.while_loop") from None

    def _add(self, node: Any) -> None:
        inputs = data_inputs(node)
        if node.op == "MatMul" and self._split_dense(node, *inputs):
            return
        if node.op in _OF_EACH_ELEMENT | _OF_TWO_ELEMENTS and self._split_elements(node, inputs):
            return
        self.graph.node.add().CopyFrom(node)
        _set_inputs(self.graph.node[-1], inputs, self._waits_for(node))

    # --- rules 1 and 3 ---

    def _split_dense(self, node: Any, x: str, weights: str) -> bool:
        """Splits a MatMul. Returns whether it is a layer that can be split."""
        value = self._value(weights)
        if value is None or value.ndim != 2 or value.nbytes < self._min_bytes:
            return False
        # By rows if it reads split columns, else by columns.
        widths = self._widths.get(node_of(x))
        by_rows = widths is not None and not node.attr["transpose_a"].b
        axis = int(node.attr["transpose_b"].b != (not by_rows))
        if widths is None or not by_rows:
            widths = _shares(value.shape[axis], len(self._devices))
        if not all(widths):
            return False
        reads = self._split_value(weights, value, axis, widths)
        parts = self._copies(node, [[_part(x, n) if by_rows else x, read] for n, read in enumerate(reads)])
        if by_rows:
            self._gather(node, "AddN", parts)
        else:
            self._put_together(node, parts, widths)
        name = node.name.replace("StatefulPartitionedCall/", "").replace("PartitionedCall/", "")
        self.layers.append(SplitLayer(name, value.shape, value.nbytes, "rows" if by_rows else "columns"))
        return True

    # --- rule 2 ---

    def _split_elements(self, node: Any, inputs: Sequence[str]) -> bool:
        """Splits an elementwise operation. Returns whether it can be computed on parts."""
        found = {self._widths[node_of(each)] for each in inputs if node_of(each) in self._widths}
        if len(found) != 1:
            return False
        (widths,) = found
        parts = [self._operand(each, widths) for each in inputs]
        if not all(parts):
            return False
        self._put_together(node, self._copies(node, list(zip(*parts, strict=True))), widths)
        return True

    def _operand(self, tensor: str, widths: tuple[int, ...]) -> Sequence[str]:
        """The tensor that each device reads in place of an input; empty if it cannot be split."""
        count = len(widths)
        if node_of(tensor) in self._widths:
            return [_part(tensor, number) for number in range(count)]
        value = self._value(tensor)
        if value is None or value.ndim > 2:
            return ()
        if value.size == 1:
            return [tensor] * count
        return self._split_value(tensor, value, value.ndim - 1, widths) if value.shape[-1] == sum(widths) else ()

    # --- rule 4 ---

    def _put_together(self, node: Any, parts: Sequence[str], widths: tuple[int, ...]) -> None:
        self._widths[node.name] = widths
        axis = self.graph.node.add(name=f"{node.name}/axis", op="Const")
        axis.attr["dtype"].type = tf.int32.as_datatype_enum
        axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(-1, tf.int32))
        self._gather(node, "ConcatV2", [*parts, axis.name])
        self.graph.node[-1].attr["N"].i = len(parts)
        self.graph.node[-1].attr["Tidx"].type = tf.int32.as_datatype_enum

    def _gather(self, node: Any, operation: str, inputs: Sequence[str]) -> None:
        """A node in the place of `node`, on the first device."""
        whole = self.graph.node.add(name=node.name, op=operation, input=inputs, device=_full(self._devices[0]))
        whole.attr["N"].i = len(inputs)
        whole.attr["T"].CopyFrom(node.attr["DstT" if node.op == "Cast" else "T"])

    # --- nodes and values ---

    def _copies(self, node: Any, inputs: Iterable[Sequence[str]]) -> list[str]:
        """The node on each device, with these inputs."""
        made = []
        for number, (device, given) in enumerate(zip(self._devices, inputs, strict=True)):
            copy = self.graph.node.add()
            copy.CopyFrom(node)
            copy.name, copy.device = _part(node.name, number), _full(device)
            for name in _STALE_ATTRIBUTES:
                copy.attr.pop(name, None)
            _set_inputs(copy, given, self._waits_for(node))
            made.append(copy.name)
        return made

    def _waits_for(self, node: Any) -> list[str]:
        """The nodes that a node waits for without reading their results.

        Nothing writes variables, so no node waits until they are read; but it waits for the nodes that the reading
        waits for, such as a check of the inputs.
        """
        waits = dict[str, None]()
        for each in node.input:
            giver = self._nodes[node_of(each)]
            if self._reads_weights(giver):
                waits |= dict.fromkeys(self._waits_for(giver))
            elif each.startswith("^"):
                waits[each] = None
        return list(waits)

    def _reads_weights(self, node: Any) -> bool:
        """Whether a node gives a variable, its handle, or a constant."""
        source = self._source(node.name)
        if source.op == "Placeholder":
            return bool(source.attr["dtype"].type == tf.resource.as_datatype_enum)
        return source.op in {"Const", "ReadVariableOp"}

    def _source(self, tensor: str) -> Any:
        """The node that a tensor comes from, followed back through Identity."""
        node = self._nodes[node_of(tensor)]
        while node.op == "Identity":
            node = self._nodes[node_of(node.input[0])]
        return node

    def _value(self, tensor: str) -> Array | None:
        """The value of weights: of a variable or a constant."""
        node = self._source(tensor)
        if node.op == "Const":
            value: Array = tf.make_ndarray(node.attr["value"].tensor)
            return value
        return self._value_of(self._source(node.input[0]).name) if node.op == "ReadVariableOp" else None

    def _split_value(self, tensor: str, value: Array, axis: int, widths: tuple[int, ...]) -> list[str]:
        """The nodes that read the parts of weights, one on each device. Layers that share weights share the parts."""
        node = self._source(tensor)
        source = node.name if node.op == "Const" else self._source(node.input[0]).name
        key = source, axis, widths
        if key not in self._reads:
            pieces = np.split(value, list(accumulate(widths))[:-1], axis)
            prefix = f"{source}/axis_{axis}" + "".join(f"_{width}" for width in sorted(set(widths)))
            self._reads[key] = [
                self._read(VariablePart(_part(prefix, number), piece, device))
                for number, (piece, device) in enumerate(zip(pieces, self._devices, strict=True))
            ]
        return self._reads[key]

    def _read(self, part: VariablePart) -> str:
        self.parts.append(part)
        handle = self.graph.node.add(name=part.handle, op="Placeholder")
        handle.attr["dtype"].type = tf.resource.as_datatype_enum
        read = self.graph.node.add(
            name=f"{part.handle}/Read", op="ReadVariableOp", input=[part.handle], device=_full(part.device)
        )
        read.attr["dtype"].type = tf.as_dtype(part.value.dtype).as_datatype_enum
        return str(read.name)


def _bypass_identities(nodes: Mapping[str, Any]) -> None:
    """Makes readers of an IdentityN read its operands: functions with custom gradients end with one."""
    for node in nodes.values():
        for place, each in enumerate(node.input):
            name, _, number = each.partition(":")
            giver = nodes.get(name)
            if giver is not None and giver.op == "IdentityN" and not any(i.startswith("^") for i in giver.input):
                node.input[place] = giver.input[int(number or 0)]


def _shares(size: int, count: int) -> tuple[int, ...]:
    """The sizes of `count` parts, as equal as possible."""
    return tuple(size // count + (number < size % count) for number in range(count))


def _part(tensor: str, number: int) -> str:
    return f"{node_of(tensor)}/part_{number}"


def _full(device: str) -> str:
    return f"/device:{device}"


def _set_inputs(node: Any, inputs: Iterable[str], waits_for: Iterable[str]) -> None:
    del node.input[:]
    node.input.extend([*inputs, *waits_for])
