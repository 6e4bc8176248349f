"""Ragged tensors: the values of all rows one behind the other, and the row splits, or the number of each value's row.

A ragged tensor of several ragged dimensions has a partition for each, the outermost first: the entries of one are the
rows of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Numbers,
    Offsets,
    PartPlaces,
    Rows,
    Size,
    Splits,
    Stack,
    Taint,
    Uniform,
    Value,
    all_uniform,
    constant,
    entries_of,
    ints_of,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import Shape, has_space, spaces, symbol


class Partition(NamedTuple):
    """A ragged dimension: its rows have the space `of`, what they hold the space `entries`."""

    of: int
    entries: int


def joined(call: Call, partitions: Sequence[Partition]) -> Partition:
    """The partition of the outermost rows into the innermost entries. Raises Finding: these belong to others."""
    for outer, inner in pairwise(partitions):
        if outer.entries != inner.of:
            raise call.unknown("its row splits are those of another ragged tensor")
    return Partition(partitions[0].of, partitions[-1].entries)


def splits_of(call: Call, *values: Value) -> Partition:
    """The partition by row splits, the outermost first."""
    if not all(isinstance(each, Splits) for each in values) or not values:
        raise call.unknown("its row splits are not followed")
    return joined(call, [Partition(each.of, each.entries) for each in values if isinstance(each, Splits)])


def check_entries(call: Call, values: Value, space: int) -> Rows:
    """The values of a ragged tensor, one for each entry of a space. Raises Finding if they are not."""
    rows = call.rows(values)
    if rows.axis != 0 or not rows.plain or rows.space != space or any(map(has_space, rows.shape[1:])):
        raise call.unknown("its values are not those of its row splits")
    return rows


# --- dense tensors ---


@rule("RaggedTensorToTensor")
def to_dense(call: Call, shape: Value, values: Value, default: Value, *partitions: Value) -> Results:
    """Rows that are cut or padded to the sizes of `shape`; -1 stands for the longest of all rows."""
    if all_uniform(shape, values, default, *partitions):
        return Uniform()
    call.uniform(default, "default")
    kinds = [each.decode() for each in call.attributes["row_partition_types"].list.s]
    whole = joined(call, _partitions(call, kinds, partitions))
    rows = check_entries(call, values, whole.entries)
    wanted = ints_of(shape)
    if wanted is None or len(wanted) < 2:
        return _longest(call)
    ragged = len(partitions) - (kinds[0] == "FIRST_DIM_SIZE")
    if wanted[0] not in (-1, symbol(whole.of)):
        raise call.unknown("it does not make one row for each row")
    if any(not call.symbols.is_size(dim) or has_space(dim) for dim in wanted[1 : ragged + 1]):
        return _longest(call)
    return entries_of(whole.of, *wanted[1 : ragged + 1], *rows.shape[1:])


def _longest(call: Call) -> Taint:
    # A later operation may cut or mask the padding: whether rows mix is not known here.
    return Taint("unknown", f"{call.name} pads to the longest of all rows")


def _partitions(call: Call, kinds: Sequence[str], tensors: Sequence[Value]) -> list[Partition]:
    found: list[Partition] = []
    for number, (kind, tensor) in enumerate(zip(kinds, tensors, strict=True)):
        if kind == "ROW_SPLITS" and isinstance(tensor, Splits):
            found.append(Partition(tensor.of, tensor.entries))
        elif kind == "VALUE_ROWIDS" and isinstance(tensor, Numbers) and number:
            found.append(_by_numbers(call, tensor))
        elif kind != "FIRST_DIM_SIZE" or number or not isinstance(tensor, Size):
            raise call.unknown("its rows are told apart in a way that is not followed")
    if kinds[0] == "FIRST_DIM_SIZE" and (not found or ints_of(tensors[0]) != (symbol(found[0].of),)):
        raise call.unknown("it does not make one row for each row")
    return found


def _by_numbers(call: Call, numbers: Numbers) -> Partition:
    """The partition by the number of the row of each entry."""
    lie, limit = numbers.rows, spaces(numbers.limit)
    if lie.axis != 0 or len(lie.shape) != 1 or not lie.plain or len(limit) != 1 or numbers.limit != symbol(limit[0]):
        raise call.unknown("its numbers are not the places of rows")
    return Partition(limit[0], lie.space)


# --- ranges ---


@rule("RaggedRange")
def ragged_range(call: Call, starts: Value, limits: Value, deltas: Value) -> Results:
    """The numbers from a start to a limit, for each row; between offsets they are the places of entries."""
    if all_uniform(starts, limits, deltas):
        return [Uniform(), Uniform()]
    like = next(each for each in (starts, limits, deltas) if not isinstance(each, Uniform))
    rows = like.rows if isinstance(like, Offsets) else call.rows(like)
    if rows.axis != 0 or not rows.plain or len(rows.shape) != 1:
        raise call.unknown("its ranges are not one for each row")
    for each in (starts, limits, deltas):
        one = isinstance(each, Uniform) and each.shape == ()
        if not one and (each.rows if isinstance(each, Offsets) else call.rows(each)).layout != rows.layout:
            raise call.unknown("its ranges are laid out differently")
    space = call.symbols.new_space()
    splits = Splits(space, rows.space)
    if isinstance(starts, Offsets) and isinstance(limits, Offsets):
        if starts.entries != limits.entries or constant(deltas) != [1]:
            raise call.unknown("it counts between the places of different entries")
        return [splits, Numbers(entries_of(space), symbol(starts.entries))]
    if isinstance(starts, Offsets) or isinstance(limits, Offsets):
        raise call.unknown("it counts by the places of entries")
    return [splits, entries_of(space)]


# --- joins along axis 1 ---


@rule("RaggedGather")
def gather(call: Call, *operands: Value) -> Results:
    """The rows of a stack in turn: one of each part for the first row, and so on."""
    *splits, values, places = operands
    stack = splits[0]
    if len(splits) != 1 or not isinstance(stack, Stack) or stack.values is not None:
        raise call.unknown("it takes rows of a ragged tensor that are not followed")
    if not isinstance(places, PartPlaces) or not places.flat:
        raise call.unknown("it takes rows of a ragged tensor by places that are not followed")
    shape = _values_of(stack, values)
    if shape is None or (places.parts, places.of) != (len(stack.entries), stack.of):
        raise call.unknown("it takes rows of ragged tensors that do not belong together")
    space = call.symbols.new_space()
    return [Splits(space, call.symbols.parts(stack.of, places.parts)), entries_of(space, *shape)]


def _values_of(stack: Stack, values: Value) -> Shape | None:
    """The shape of a value of a stack; None if these are not its values."""
    if isinstance(values, Stack):
        return values.values if values.entries == stack.entries else None
    # Values of one space one behind the other are rows with that many in the outer part of their layout.
    alike = isinstance(values, Rows) and (values.axis, values.block) == (0, 1) and values.outer == len(stack.entries)
    if not alike or not isinstance(values, Rows) or set(stack.entries) != {values.space}:
        return None
    return None if any(map(has_space, values.shape[1:])) else values.shape[1:]


# --- text of TensorFlow's own ---


@rule("UnicodeDecode UnicodeDecodeWithOffsets")
def decode(call: Call, text: Value) -> Results:
    """The code points of each string, and for each where its bytes begin."""
    rows = strings(call, text)
    space = call.symbols.new_space()
    offsets = [entries_of(space)] if call.node.op == "UnicodeDecodeWithOffsets" else []
    return [Splits(space, rows.space), entries_of(space), *offsets]


@rule("UnicodeEncode")
def encode(call: Call, values: Value, splits: Value) -> Results:
    whole = splits_of(call, splits)
    check_entries(call, values, whole.entries)
    return entries_of(whole.of)


@rule("StringNGrams")
def ngrams(call: Call, values: Value, splits: Value) -> Results:
    """Pieces that follow each other within a row; rows have any number of them.

    Of a call without any pieces the kernel gives nothing, also where it would pad an empty row beside others.
    """
    if call.number("pad_width"):
        raise call.unknown("it pads, but not a call of empty rows")
    whole = splits_of(call, splits)
    check_entries(call, values, whole.entries)
    space = call.symbols.new_space()
    return [entries_of(space), Splits(space, whole.of)]


def strings(call: Call, text: Value) -> Rows:
    """A vector of strings, one for each row or entry."""
    rows = call.rows(text)
    if rows.axis != 0 or not rows.plain or len(rows.shape) != 1:
        raise call.unknown("its strings are not one for each row")
    return rows
