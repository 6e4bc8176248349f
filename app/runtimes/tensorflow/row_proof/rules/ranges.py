"""Ranges over sizes, and over the places of rows."""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import (
    Numbers,
    Rows,
    Size,
    Splits,
    Uniform,
    Value,
    all_uniform,
    ints_of,
)
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule
from app.runtimes.tensorflow.row_proof.dimensions import Product, divided, is_space, spaces, symbol
from app.runtimes.tensorflow.row_proof.rules.shaping import MAX_INTS


@rule("Range")
def number_range(call: Call, start: Value, limit: Value, delta: Value) -> Results:
    begin, end, step = (ints_of(each) for each in (start, limit, delta))
    # 1. A uniform range, with its elements if they are known and few.
    if isinstance(start, Uniform) and isinstance(limit, Uniform) and isinstance(delta, Uniform):
        known = [each[0] for each in (begin, end, step) if each and isinstance(each[0], int)]
        if len(known) == 3 and known[2] != 0:
            elements = range(known[0], known[1], known[2])
            return Uniform((len(elements),), tuple(elements) if len(elements) <= MAX_INTS else None)
        return Uniform((call.size_of(limit) if begin == (0,) and step == (1,) else call.symbols.fresh(),))
    # 2. The places of rows: a range from 0 by 1 to a multiple of the number of rows.
    if isinstance(limit, Size) and begin == (0,) and step == (1,):
        dim = limit.ints[0]
        found = spaces(dim)
        block = divided(dim, symbol(found[0])) if len(found) == 1 and is_space(found[0]) else None
        if block is not None and (isinstance(block, Product) or block > 0):
            return Numbers(Rows((dim,), 0, 1, block, found[0]), dim, counted=True)
    # 3. The row splits of rows with n entries each: a range from 0 by n to n times their number, and 1.
    if isinstance(limit, Size) and (entries := call.symbols.one_less(limit.ints[0])):
        if begin == (0,) and step == (entries.factor,):
            (space,) = entries.symbols
            return Splits(call.symbols.parts(space, entries.factor), space)
        raise call.unknown("it counts row splits")
    if isinstance(limit, Rows):
        raise call.unknown("how far it counts depends on rows")
    raise call.mixes("counts by the number of rows, or the place of a row")


@rule("LinSpace")
def lin_space(call: Call, start: Value, stop: Value, count: Value) -> Results:
    if not all_uniform(start, stop, count):
        raise call.unknown("it counts by values of rows")
    known = ints_of(count)
    return Uniform((known[0] if known else call.symbols.fresh(),))
