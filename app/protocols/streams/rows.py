"""Lines of JSON to rows of inputs, and rows of outputs to lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType

import numpy as np

from app.codecs.at_once import LENIENT, SHORT_BYTES, check_text
from app.codecs.json.long_arrays import SHORTEST_BYTES, Numbers
from app.codecs.json.parsing import parse_value
from app.codecs.json.predict_documents import decode_predict, predictions
from app.codecs.json.scalars import from_numbers
from app.codecs.json.writing import dumps
from app.core.errors import InvalidRequest
from app.core.inference import Array, ModelSignature
from app.protocols.streams.lines import Block
from app.transports.http.long_bodies.reading_process import Reader
from app.transports.http.replies import error_body


def read_rows(lines: Sequence[bytes], signature: ModelSignature, most: float = inf) -> dict[str, Array]:
    """The inputs of shape [lines, ...] by name; each line is read as an element of `instances`.

    Args:
        most: the most values of long lines.

    Raises:
        TakesLong: there are more.
        InvalidRequest: a line is invalid, or the lines differ in shape.
        Unsupported: an input type has no JSON form.
    """
    inputs = _numbers(lines, signature, most)
    if inputs is None:
        if sum(map(len, lines)) >= SHORT_BYTES:
            check_text(b",".join(lines), most / LENIENT)
        inputs, _ = decode_predict({"instances": list(map(parse_value, lines))}, signature)
    return inputs


def read_rows_by(lines: Sequence[bytes], signature: ModelSignature, reader: Reader) -> dict[str, Array]:
    """The inputs, as by `read_rows`, read by `reader`, here or in another process. Raises also errors of its `ask`."""
    return reader.ask(_read_views, [memoryview(line) for line in lines], signature)


def _read_views(_: None, lines: Sequence[memoryview], signature: ModelSignature) -> dict[str, Array]:
    return read_rows(list(map(bytes, lines)), signature)


def write_rows(
    outputs: Mapping[str, Array], count: int, ragged: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> bytes:
    """Lines of predictions, one for each row of the outputs [count, ...]. Raises InvalidRequest for other rows.

    Args:
        ragged: the signature's `ragged_outputs`, whose rows are nested lists.
    """
    rows = predictions(outputs, ragged)
    if len(rows) != count:
        raise InvalidRequest(f"The model made {len(rows)} predictions of {count} instances; send them to :predict")
    if isinstance(rows, np.ndarray) and rows.size:
        return _number_lines(rows)
    return b"".join([dumps({"prediction": row}) + b"\n" for row in rows])


def _number_lines(rows: Array) -> bytes:
    """The same as dumping row by row, in a fifth of the time: so many successive brackets stand only between rows."""
    end, start = b"]" * (rows.ndim - 1), b"[" * (rows.ndim - 1)
    between = end + b'}\n{"prediction":' + start
    return b'{"prediction":' + dumps(rows)[1:-1].replace(end + b"," + start, between) + b"}\n"


def write_errors(block: Block, text: str) -> bytes:
    """Lines of errors, one for each line of the block."""
    numbers = range(block.first, block.first + len(block.lines))
    return b"".join([error_body(f"Line {number}: {text}") + b"\n" for number in numbers])


def _numbers(lines: Sequence[bytes], signature: ModelSignature, most: float) -> dict[str, Array] | None:
    """The input of a long block of numbers, read without a Python object for each number.

    None if the block is short, if a line is not an array of numbers, or if lines and rows do not match.
    """
    if len(signature.inputs) != 1 or lines[0][:1] in (b"{", b'"'):
        return None
    text = b"[" + b",".join(lines) + b"]"
    if len(text) < SHORTEST_BYTES:
        return None
    ((name, spec),) = signature.inputs.items()
    try:
        array = from_numbers(Numbers(text, most), spec.dtype)
    except ValueError:
        return None
    if array is None or not _one_row_a_line(array, lines):
        return None
    return {name: array}


def _one_row_a_line(array: Array, lines: Sequence[bytes]) -> bool:
    """Is each line exactly one row?

    As many successive brackets as begin a row stand only at the beginning of a row. If each line begins with them and
    there are as many lines as rows, rows and lines begin at the same places. If a row is a plain number, as many
    numbers as lines leave no comma except between lines.
    """
    opening = b"[" * (array.ndim - 1)
    return len(array) == len(lines) and all(line.startswith(opening) for line in lines)
