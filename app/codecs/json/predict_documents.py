"""TensorFlow Serving's JSON documents for predict: rows (`instances`) or columns (`inputs`) in, predictions out.

A document with `instances` lists rows; its reply is `{"predictions": [...]}`, one element for each row. A document with
`inputs` has whole tensors; its reply is `{"outputs": ...}`. The only input or output may stand without its name. A
RaggedTensor is nested lists in rows, and may be in `inputs`, in place of values and row splits (ragged_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from math import inf
from operator import eq
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson

from app.codecs.arrays import cast
from app.codecs.at_once import MOST_VALUES
from app.codecs.body_format import BodyFormat, PredictBody, ReplyFormat, RowGroup
from app.codecs.json.long_arrays import SHORTEST_BYTES, Numbers
from app.codecs.json.nested_lists import column, rows, tensor
from app.codecs.json.parsing import parse, quote
from app.codecs.json.ragged_rows import nested_inputs, nested_rows, ragged_tensors, without_splits
from app.codecs.json.row_groups import group_rows
from app.codecs.json.scalars import is_base64
from app.codecs.json.writing import check_writable, dumps, dumps_in_slices, jsonable, takes_long, texts_of_requests
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import DEFAULT_SIGNATURE, Array, InferenceResponse, ModelSignature, TensorSpec, dtype_name

_BASE64_KEYS = {"b64"}

#: The most characters of names in an error text. Chosen.
_MOST_NAMED = 1024

# --- as a body format ---


def read(body: bytes, _: int, *, at_once: bool = False) -> PredictBody:
    """The content of a JSON body that is within the limit of bytes. Raises InvalidRequest; `at_once` also TakesLong."""
    return document_body(parse(body, MOST_VALUES if at_once else inf))


def document_body(document: Mapping[str, Any]) -> PredictBody:
    """The content of a parsed document of this shape, from JSON or another format. Raises InvalidRequest."""
    return PredictBody(
        lambda signature: decode_predict(document, signature)[0],
        named_signature(document),
        by_row="instances" in document,
        row_groups=lambda signature: decode_row_groups(document, signature),
    )


# --- requests ---


def signature_name(document: Mapping[str, Any]) -> str:
    """The signature to call; the default one if the name is absent or empty. Raises InvalidRequest."""
    return named_signature(document) or DEFAULT_SIGNATURE


def named_signature(document: Mapping[str, Any]) -> str:
    """The document's `signature_name`; empty if absent. Raises InvalidRequest."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise InvalidRequest(
            f"JSON Value: {quote(document)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name


def decode_predict(document: Mapping[str, Any], signature: ModelSignature) -> tuple[dict[str, Array], bool]:
    """The inputs (name -> array), and whether the document lists rows.

    Raises:
        InvalidRequest: the text says what is wrong and where.
        Unsupported: JSON cannot represent the type of an input.
    """
    if _lists_rows(document):
        found: dict[str, Array] = {}
        columns, named = _columns_of_rows(_instances(document), signature)
        for name, each in columns.items():
            found |= _row_tensors(name, each, signature, named=named)
        return found, True
    return _decode_columns(document["inputs"], signature), False


def decode_row_groups(document: Mapping[str, Any], signature: ModelSignature) -> list[RowGroup]:
    """The rows of a document that `decode_predict` rejected, in groups of equal shape; none if there is one shape.

    Raises:
        InvalidRequest, Unsupported: a row is not rectangular in itself, columns do not have equally many rows, or there
            are neither rows nor columns.
    """
    columns = _columns(document, signature)
    if any(type(each) is not list for each in columns.values()) or len(set(map(len, columns.values()))) != 1:
        raise InvalidRequest("Inputs must be lists of equally many rows")
    return group_rows(columns, {name: signature.inputs[name].dtype for name in columns})


def _columns(document: Mapping[str, Any], signature: ModelSignature) -> dict[str, Any]:
    """The rows of each input by name."""
    if _lists_rows(document):
        columns, _ = _columns_of_rows(_expanded(_instances(document)), signature)
        return {name: list(map(_expanded, _expanded(each))) for name, each in columns.items()}
    value = document["inputs"]
    values = _values_by_name(value, _expected(value, signature), signature)
    return {name: _expanded(each) for name, each in values.items()}


def _expanded(value: Any) -> Any:
    return value.expanded() if isinstance(value, Numbers) else value


def join_rows(bodies: Sequence[bytes], signature: ModelSignature) -> tuple[dict[str, Array], list[int]] | None:
    """The rows of several bodies one after another, and the number of rows of each body.

    None unless each body is short and has `instances` alone, and all rows fit into one array.
    """
    if len(signature.inputs) != 1:
        return None
    ((name, spec),) = signature.inputs.items()
    values: list[Any] = []
    counts: list[int] = []
    try:
        if max(map(len, bodies)) >= SHORTEST_BYTES:
            return None
        for body in bodies:
            document = orjson.loads(body)
            instances = document["instances"]
            if len(document) != 1 or type(instances) is not list or not instances:
                return None
            values += instances
            counts.append(len(instances))
        return {name: rows(values, spec.dtype)}, counts
    except (orjson.JSONDecodeError, TypeError, KeyError, ServingError):
        return None


def _lists_rows(document: Mapping[str, Any]) -> bool:
    """Whether a document lists rows, not columns. Raises InvalidRequest if it has neither or both."""
    if "instances" in document and "inputs" in document:
        raise InvalidRequest(
            f"JSON Value: {quote(document)} Not formatted correctly expecting only one of"
            " 'inputs' or 'instances' keys to exist"
        )
    if not ("instances" in document or "inputs" in document):
        raise InvalidRequest("Missing 'inputs' or 'instances' key")
    return "instances" in document


def _instances(document: Mapping[str, Any]) -> list[Any] | Numbers:
    values = document["instances"]
    if isinstance(values, Numbers):
        return values
    if type(values) is not list:
        raise InvalidRequest(f"JSON Value: {quote(document)} Expecting 'instances' to be a list/array")
    if not values:
        raise InvalidRequest(f"JSON Value: {quote(document)} No values in 'instances' array")
    return values


def _columns_of_rows(
    values: list[Any] | Numbers, signature: ModelSignature
) -> tuple[dict[str, list[Any] | Numbers], bool]:
    """The rows of each input by name, and whether they come from objects. Raises InvalidRequest."""
    inputs = _row_inputs(values[0] if type(values) is list else None, signature)

    # 1. Objects with all inputs by name. Without inputs, only one row is possible.
    if not inputs and type(values) is list and len(values) > 1:
        raise InvalidRequest(
            f"Expecting one of the inputs {','.join(sorted(signature.inputs))} in each of the instances"
        )
    if type(values) is list and any(map(_is_object, [value for value in values if type(value) is dict])):
        _check_objects(values, inputs.keys(), _is_object(values[0]))
        return {name: [value[name] for value in values] for name in inputs}, True

    # 2. Bare values: the rows of the only input.
    if len(inputs) != 1:
        raise InvalidRequest(
            "instances is a plain list, but expecting list of objects as multiple input tensors required: "
            + ",".join(sorted(inputs))
        )
    (name,) = inputs
    return {name: values}, False


def _row_inputs(value: Any, signature: ModelSignature) -> Mapping[str, TensorSpec]:
    """The inputs of a row, without row splits: a ragged input is a list."""
    inputs = _expected(value, signature)
    return without_splits(inputs, signature.ragged) if signature.ragged else inputs


def _row_tensors(
    name: str, values: list[Any] | Numbers, signature: ModelSignature, *, named: bool = False
) -> dict[str, Array]:
    """The rows of an input as tensors: one, or those of a ragged input. `named`: the values come from objects."""
    if name in signature.ragged:
        return ragged_tensors(values, name, signature.ragged[name], signature)
    dtype = signature.inputs[name].dtype
    return {name: column(values, dtype, name) if named and type(values) is list else rows(values, dtype)}


def _decode_columns(value: Any, signature: ModelSignature) -> dict[str, Array]:
    """The inputs in columns."""
    nested = nested_inputs(signature, value if _is_object(value) else None)
    inputs = without_splits(_expected(value, signature), nested)
    found: dict[str, Array] = {}
    for name, each in _values_by_name(value, inputs, signature).items():
        if name in nested:
            found |= ragged_tensors(each, name, nested[name], signature)
        else:
            found[name] = _column(name, each, signature)
    return found


def _values_by_name(value: Any, inputs: Mapping[str, TensorSpec], signature: ModelSignature) -> dict[str, Any]:
    """The value of each of these inputs. Raises InvalidRequest.

    Unknown names are ignored, as by TensorFlow Serving, unless the signature is strict.
    """
    if not _is_object(value):
        if len(inputs) != 1:
            raise InvalidRequest(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required: "
                + ",".join(sorted(inputs))
            )
        return dict.fromkeys(inputs, value)
    for name in inputs:
        if name not in value:
            raise InvalidRequest(f"Missing named input: {name} in 'inputs' object.")
    if signature.strict_names and (unknown := value.keys() - inputs.keys()):
        raise InvalidRequest(f"Unknown named input: {_names(unknown)} in 'inputs' object; expected {_names(inputs)}.")
    return {name: value[name] for name in inputs}


def _column(name: str, value: Any, signature: ModelSignature) -> Array:
    spec = signature.inputs[name]
    if isinstance(value, np.ndarray):  # from MessagePack's documents, never from JSON
        return cast(value, spec)
    if type(value) is list and not value:
        return _no_rows(spec)
    try:
        return tensor(value, spec.dtype)
    except InvalidRequest as error:
        error.args = (f"Input {name!r}: {error}",)
        raise


def _no_rows(spec: TensorSpec) -> Array:
    """The array of an empty list: the signature may say the shape of its rows."""
    sizes = [size for size in spec.shape or () if size is not None]
    known = bool(spec.shape) and len(sizes) == len(spec.shape or ()) - 1 and (spec.shape or ())[0] is None
    return np.empty((0, *sizes) if known else (0,), spec.dtype)


def _names(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names)))[:_MOST_NAMED]


def _expected(value: Any, signature: ModelSignature) -> Mapping[str, TensorSpec]:
    """The inputs that this value has to hold: an object may leave out optional ones."""
    return signature.expected(value) if _is_object(value) else signature.unnamed()


def _is_object(value: object) -> bool:
    return type(value) is dict and not is_base64(value)


def _check_objects(values: list[Any], names: Any, named: bool) -> None:
    """Check that all instances are objects with exactly these keys, or none is an object. Raises InvalidRequest."""
    # 1. Where all rows are objects, a loop in C compares the names.
    alike = named and names != _BASE64_KEYS and set(map(type, values)) == {dict}
    if alike and all(map(eq, map(dict.keys, values), repeat(names))):
        return

    # 2. The first instance that is an object although others are not, or the other way round.
    objects = [index for index, value in enumerate(values) if type(value) is dict and not is_base64(value)]
    if named:
        odd = next((index for index, place in enumerate(objects) if index != place), len(objects))
    else:
        odd = next(iter(objects), len(values))

    # 3. An instance before it with other names.
    for index, value in enumerate(values[:odd] if named else ()):
        if value.keys() != names:
            raise InvalidRequest(
                f"Failed to process element: {index} of 'instances' list. JSON object: {quote(value)}"
                f" keys must be equal to: {','.join(sorted(names))}"
            )
    if odd != len(values):
        found, expected = ("list", "object") if named else ("object", "value/list")
        raise InvalidRequest(f"Expecting {expected} but got {found} at item {odd} of input list")


# --- replies ---


def check_outputs_writable(outputs: Mapping[str, TensorSpec]) -> None:
    """Check outputs before they are computed. Raises Unsupported, InvalidRequest if JSON cannot represent one."""
    for name, spec in outputs.items():
        if spec.dtype.names:
            raise InvalidRequest(
                f"Output {name!r} is quantized ({dtype_name(spec.dtype)}), which JSON cannot represent;"
                " ask for it by gRPC, or for other outputs by ?output=NAME"
            )
        check_writable(spec.dtype)


def encode_predict(
    outputs: Mapping[str, Array],
    by_row: bool,
    *,
    in_slices: bool = False,
    ragged: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> bytes:
    """The reply's JSON. Raises InvalidRequest if `by_row` is set and the outputs do not have equally many rows.

    `in_slices`: in a thread, for outputs of which `takes_long` is true. `ragged`: the signature's `ragged_outputs`.
    """
    write = dumps_in_slices if in_slices else dumps
    if by_row:
        return write({"predictions": predictions(outputs, ragged)})
    columns = {name: jsonable(name, array) for name, array in outputs.items()}
    return write({"outputs": columns if len(columns) != 1 else next(iter(columns.values()))})


def encode_each_request(outputs: Mapping[str, Array], rows: Sequence[int]) -> list[bytes] | None:
    """The replies of several requests, as `encode_predict` writes each `by_row`; None for several outputs.

    Args: as of `texts_of_requests`, which may return None, too.
    """
    if len(outputs) != 1:
        return None
    (array,) = outputs.values()
    texts = texts_of_requests(array, rows)
    if texts is None:
        return None
    inner = array.ndim - 1
    before, after = b'{"predictions":[' + b"[" * inner, b"]" * inner + b"]}"
    return [before + text + after for text in texts]


def encode_each_row(rows: Sequence[Mapping[str, Array]], by_row: bool) -> bytes:
    """The reply's JSON from the outputs of rows, which may differ in shape."""
    each = [{name: jsonable(name, array) for name, array in row.items()} for row in rows]
    names = list(each[0])
    if by_row:
        return dumps({"predictions": each if len(names) != 1 else [row[names[0]] for row in each]})
    columns = {name: [row[name] for row in each] for name in names}
    return dumps({"outputs": columns if len(names) != 1 else columns[names[0]]})


def predictions(outputs: Mapping[str, Array], ragged: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Any:
    """The value of `predictions`, for `dumps`. Raises InvalidRequest: the outputs do not have equally many rows.

    Args:
        ragged: by output, its row splits; where these are outputs, too, nested lists take the place of all of them.
    """
    # 1. One output with rows.
    nested = {name: splits for name, splits in ragged.items() if {name, *splits} <= outputs.keys()}
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        if array.ndim:
            return jsonable(name, array)

    # 2. Several, which have equally many rows: those of ragged ones follow from their outermost row splits.
    implied = {name for splits in nested.values() for name in splits}
    _check_rows(
        {
            name: outputs[nested[name][0]][1:] if name in nested else array
            for name, array in outputs.items()
            if name not in implied
        }
    )
    columns = {
        name: nested_rows(name, array, [outputs[each] for each in nested[name]])
        if name in nested
        else jsonable(name, array)
        for name, array in outputs.items()
        if name not in implied
    }

    # 3. The rows, as values of a single output, or as objects.
    if nested and len(columns) == 1:
        return next(iter(columns.values()))
    count = len(next(iter(columns.values()), ()))
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def _check_rows(outputs: Mapping[str, Array]) -> None:
    expected: int | None = None
    for name, array in outputs.items():
        if not array.ndim:
            raise InvalidRequest(
                f"Tensor name: {name} has inconsistent batch size: it is a scalar; ask for it with 'inputs'"
            )
        if expected is None:
            expected = len(array)
        if len(array) != expected:
            raise InvalidRequest(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {expected}")


def _write(response: InferenceResponse, by_row: bool) -> bytes:
    return encode_predict(response.outputs, by_row, in_slices=takes_long(response.outputs))


#: TensorFlow Serving reads JSON of any Content-Type; its users send the one that `curl --data` sets.
FORMAT = BodyFormat(
    ("application/json",),
    read,
    ReplyFormat(check_outputs_writable, _write),
    also_read=("text/plain", "text/json", "application/x-www-form-urlencoded"),
    parsed=True,
)
