"""Text and examples, which are parsed for each row or split into any number of pieces."""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Places,
    Rows,
    Size,
    Splits,
    Taint,
    Uniform,
    Value,
    entries_of,
    rows_at,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import symbol


@rule("DecodeCSV")
def decode_csv(call: Call, records: Value, *defaults: Value) -> Results:
    call.check_uniform("default", *defaults)
    return [call.shaped(records, call.shape(records))] * len(defaults)


@rule("DecodeRaw DecodePaddedRaw DecodeCompressed")
def decode_raw(call: Call, value: Value, *length: Value) -> Results:
    """DecodeRaw rejects strings of different lengths."""
    call.check_uniform("length", *length)
    shape = call.shape(value)
    new = shape if call.node.op == "DecodeCompressed" else (*shape, call.symbols.fresh())
    return call.shaped(value, new)


def _serialized(call: Call, value: Value) -> Rows:
    rows = call.rows(value)
    if rows.axis != 0 or not rows.plain or len(rows.shape) != 1:
        raise call.unknown("its examples are not one for each row")
    return rows


@rule("ParseExample ParseExampleV2")
def parse_example(call: Call, serialized: Value, *others: Value) -> Results:
    call.check_uniform("names, keys or defaults", *others)
    rows = _serialized(call, serialized)
    attributes = call.attributes
    sparse = len(attributes["sparse_types"].list.type)
    spaces = [call.symbols.new_space() for _ in range(sparse)]
    results: list[Value] = [Places(entries_of(space, 2), rows.space) for space in spaces]
    results += map(entries_of, spaces)
    results += [Size((2,), (symbol(rows.space), call.symbols.varying())) for _ in spaces]
    results += [_dense(call, rows, shape) for shape in attributes["dense_shapes"].list.shape]
    if call.node.op == "ParseExampleV2":
        results += _ragged(call, rows)
    return results


def _dense(call: Call, rows: Rows, shape: object) -> Value:
    dims = [each.size for each in shape.dim]  # type: ignore[attr-defined]  # it is a protobuf
    if any(each < 0 for each in dims):
        # A later operation may cut or pad the values to a fixed length.
        return Taint("unknown", f"{call.name} pads to the longest of all rows")
    return rows_at((rows.shape[0], *dims), 0, rows)


def _ragged(call: Call, rows: Rows) -> list[Value]:
    count = len(call.attributes["ragged_value_types"].list.type)
    spaces = [call.symbols.new_space() for _ in range(count)]
    return [*map(entries_of, spaces), *[Splits(space, rows.space) for space in spaces]]


@rule("StringSplitV2 StringSplit")
def split(call: Call, value: Value, separator: Value, *more: Value) -> Results:
    """The places of any number of pieces for each row, and the pieces."""
    call.uniform(separator, "separator")
    if isinstance(value, Uniform):
        return [Uniform((call.symbols.fresh(), 2)), Uniform((call.symbols.fresh(),)), Uniform((2,))]
    rows = _serialized(call, value)
    space = call.symbols.new_space()
    widest = Size((2,), (symbol(rows.space), call.symbols.varying()))
    return [Places(entries_of(space, 2), rows.space), entries_of(space), widest]
