"""TensorLists, over time or over rows."""

from __future__ import annotations

from dataclasses import replace

from app.runtimes.tensorflow.row_proof.abstract_values import (
    ListOf,
    Numbers,
    Rows,
    Sink,
    Size,
    Taint,
    Uniform,
    Value,
    ints_of,
    numbers_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, THIS_ROW, Dim, Shape, has_space, symbol, times
from app.runtimes.tensorflow.row_proof.joins import join
from app.runtimes.tensorflow.row_proof.loops import is_this_row


def _list(call: Call, value: Value) -> ListOf:
    if isinstance(value, ListOf):
        return value
    raise call.unknown("its list is not followed")


@rule("TensorListReserve EmptyTensorList", takes_all=True)
def reserve(call: Call, shape: Value, count: Value) -> Results:
    """A new list. The shape is the expected one of its elements."""
    if call.node.op == "EmptyTensorList" or isinstance(count, Taint):
        raise call.unknown("a list that grows")
    return _empty(call, count)


def _empty(call: Call, count: Value) -> ListOf:
    """A list of this many elements, none of which is set."""
    if not isinstance(count, Uniform | Size):
        raise call.unknown("the length of its list depends on rows")
    of_row = isinstance(count, Uniform) and count.of_row
    return ListOf(None, count.ints[0] if count.ints and not of_row else None)


@rule("TensorListFromTensor")
def from_tensor(call: Call, value: Value, shape: Value) -> Results:
    if isinstance(value, Numbers):
        if (
            value.rows.axis == 0
            and value.rows.plain
            and len(value.rows.shape) == 1
            and value.limit == value.rows.shape[0] == symbol(ROWS)
        ):
            return ListOf(Size((), (symbol(THIS_ROW),)), value.limit, by_rows=True)
        raise call.unknown("it makes a list of the places of rows")
    whole = call.shape(value)
    if isinstance(value, Uniform):
        return ListOf(Uniform(whole[1:]), whole[0])
    rows = call.rows(value)
    if rows.axis > 0:
        return ListOf(rows_at(whole[1:], rows.axis - 1, rows), whole[0])
    if not rows.plain or rows.space != ROWS:
        raise call.unknown("it makes a list of rows with any number of entries")
    return ListOf(Uniform(whole[1:], None, True), whole[0], by_rows=True)


@rule("TensorListGetItem")
def get_item(call: Call, of: Value, index: Value, shape: Value) -> Results:
    found = _list(call, of)
    if isinstance(index, Size) and is_this_row(index) and found.by_rows and found.length == symbol(ROWS):
        return replace(found.element, of_row=True) if isinstance(found.element, Uniform) else found.element or found
    if not isinstance(index, Uniform):
        by_count = "takes an element by the number of rows, or the place of a row"
        raise call.depends(index, by_count, "it takes an element by values of rows")
    if found.by_rows:
        raise call.mixes("takes the row at one place")
    if found.element is None:
        raise call.unknown("it takes an element that was not set")
    if index.of_row:
        if isinstance(found.element, Uniform):
            return replace(found.element, of_row=True)
        raise call.mixes("combines one row with all rows, in a loop over rows")
    return found.element


@rule("TensorListSetItem")
def set_item(call: Call, of: Value, index: Value, item: Value) -> Results:
    if isinstance(of, Sink):
        if of.item is not None or not is_this_row(index):
            raise call.unknown("it sets an element that is not that of the row")
        if not isinstance(item, Uniform):
            raise call.mixes("keeps, for one row, what belongs to all rows")
        return Sink(of.token, replace(item, of_row=True))
    found = _list(call, of)
    if not isinstance(index, Uniform) or found.by_rows or isinstance(item, ListOf | Sink):
        raise call.unknown("it sets an element in a way that is not followed")
    if index.of_row and not isinstance(item, Uniform):
        raise call.mixes("combines one row with all rows, in a loop over rows")
    element: Value = item
    if found.element is not None:
        element = join(found.element, item, lambda axis: call.symbols.fresh())
    if isinstance(element, Taint):
        return element
    if isinstance(element, Uniform) and index.of_row:
        element = replace(element, of_row=True)
    return replace(found, element=element)


@rule("TensorListStack")
def stack(call: Call, of: Value, shape: Value) -> Results:
    found = _list(call, of)
    if found.element is None:
        raise call.unknown("its list has no elements")
    expected = call.number("num_elements", -1)
    length: Dim = found.length if found.length is not None else expected if expected >= 0 else call.symbols.fresh()
    return _stacked(call, found, length)


def _stacked(call: Call, found: ListOf, length: Dim) -> Value:
    element = found.element
    assert element is not None
    shape = call.shape(element)
    if found.by_rows:
        if length != symbol(ROWS) or not isinstance(element, Uniform):
            raise call.unknown("its list is not one element for each row")
        return Rows((length, *shape), 0)
    if has_space(length):
        raise call.unknown("its list is as long as there are rows")
    if isinstance(element, Uniform):
        return Uniform((length, *shape), None, element.of_row)
    rows = call.rows(element)
    return rows_at((length, *shape), rows.axis + 1, rows)


@rule("TensorListConcat TensorListConcatV2")
def concatenated(call: Call, of: Value, *others: Value) -> Results:
    found = _list(call, of)
    if found.by_rows or found.element is None or found.length is None or has_space(found.length):
        raise call.unknown("it joins elements of different lengths")
    shape = call.shape(found.element)
    new: Shape = (times(found.length, shape[0]), *shape[1:])
    if isinstance(found.element, Uniform):
        return [Uniform(new, None, found.element.of_row), Uniform((found.length,))]
    rows = call.rows(found.element)
    if rows.axis == 0:
        joined = Rows(new, 0, times(found.length, rows.outer), rows.block, rows.space)
    else:
        joined = rows_at(new, rows.axis, rows)
    return [joined, Taint("unknown", f"{call.name}: the lengths of its elements are not followed")]


@rule("TensorListLength")
def length_of(call: Call, of: Value) -> Results:
    found = _list(call, of)
    return Uniform(()) if found.length is None else numbers_of((), (found.length,))


@rule("TensorListElementShape")
def element_shape(call: Call, of: Value) -> Results:
    raise call.unknown("the shape of the elements of a list is not followed")


# --- TensorArrays of TensorFlow 1: the flow carries the list ---


@rule("TensorArrayV3")
def array(call: Call, size: Value) -> Results:
    return [Uniform(), _empty(call, size)]


@rule("TensorArrayReadV3")
def array_read(call: Call, handle: Value, index: Value, flow: Value) -> Results:
    return get_item(call, flow, index, Uniform())


@rule("TensorArrayWriteV3")
def array_write(call: Call, handle: Value, index: Value, item: Value, flow: Value) -> Results:
    return set_item(call, flow, index, item)


@rule("TensorArrayScatterV3")
def array_scatter(call: Call, handle: Value, indices: Value, value: Value, flow: Value) -> Results:
    before = _list(call, flow)
    if before.element is not None:
        raise call.unknown("it sets elements of a list that has some")
    found = from_tensor(call, value, Uniform())
    assert isinstance(found, ListOf)
    _check_order(call, indices, found)
    if found.by_rows and before.length != found.length:
        raise call.unknown("its list is not as long as there are rows")
    return replace(found, length=before.length)


def _check_order(call: Call, indices: Value, found: ListOf) -> None:
    """The elements must lie in their order: their places are a range from 0."""
    length, ints = found.length, ints_of(indices)
    by_rows = isinstance(indices, Numbers) and indices.rows.plain and indices.limit == length
    in_order = ints is not None and isinstance(length, int) and ints == tuple(range(length))
    # The places of a list over time do not matter for rows: all its elements are alike.
    over_time = isinstance(indices, Uniform) and not has_space(length or 0)
    if found.by_rows != by_rows or not (by_rows or in_order or over_time):
        raise call.unknown("the order of its elements is not followed")


@rule("TensorArrayGatherV3")
def array_gather(call: Call, handle: Value, indices: Value, flow: Value) -> Results:
    found = _list(call, flow)
    if found.element is None:
        raise call.unknown("its list has no elements")
    if found.by_rows:
        _check_order(call, indices, found)
        return _stacked(call, found, found.length or 0)
    shape = call.shape(call.uniform(indices, "places"))
    return _stacked(call, found, shape[0])


@rule("TensorArraySizeV3")
def array_size(call: Call, handle: Value, flow: Value) -> Results:
    return length_of(call, flow)
