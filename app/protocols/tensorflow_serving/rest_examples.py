"""Classify and regress over REST: JSON examples to serialized tf.Example, and results to JSON.

In a tf.Example whole numbers and booleans become int64 features, decimal numbers become float features, strings and
base64 objects become bytes features.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from app.codecs.json.parsing import parse, quote
from app.codecs.json.predict_documents import signature_name
from app.codecs.json.scalars import is_base64, is_number, to_bytes
from app.codecs.json.writing import dumps, jsonable
from app.codecs.protobuf.wire import field_start, varint
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, ModelSignature
from app.protocols.tensorflow_serving.examples import (
    CLASSES,
    CLASSIFY,
    INPUT,
    REGRESSION,
    SCORES,
    ExamplesMethod,
    with_context,
)

_KINDS = {bool: "int64", int: "int64", float: "float", str: "bytes", dict: "bytes"}

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_UINT64_MAX = 2**64 - 1
_FLOAT_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class ExamplesCall:
    """A request of classify or regress.

    Attributes:
        outputs: the outputs to compute.
        encode: outputs by name -> the reply's JSON. Raises InvalidRequest if their shapes or types do not fit.
    """

    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    encode: Callable[[Mapping[str, Array]], bytes]


class ExamplesBody:
    """The JSON of a body, with at most `most` values. Raises InvalidRequest, TakesLong."""

    __slots__ = ("_document",)

    def __init__(self, body: bytes, most: float = inf) -> None:
        self._document = parse(body, most, short_bytes=0)

    def signature_name(self) -> str:
        """The signature that the body names. Raises InvalidRequest."""
        return signature_name(self._document)

    def call(self, method: ExamplesMethod, signature: ModelSignature) -> ExamplesCall:
        """The request, for a signature. Raises as `read_examples`."""
        return read_examples(method, self._document, signature)


def read_examples(method: ExamplesMethod, document: Mapping[str, Any], signature: ModelSignature) -> ExamplesCall:
    """The request in a document. Raises InvalidRequest if examples are malformed or the signature does not fit."""
    wanted = method.wanted(signature)
    examples = _examples(document)
    encode = _encode_classify if method == CLASSIFY else _encode_regress
    return ExamplesCall({INPUT: examples}, wanted, partial(encode, count=len(examples)))


# --- requests: examples ---


def serialize_example(features: Mapping[str, Any]) -> bytes:
    """A tf.Example. Raises InvalidRequest, which names the feature that tf.Example cannot represent."""
    if not features:
        return b""
    entries: list[bytes] = []
    for name in sorted(features):
        try:
            key, feature = name.encode(), _feature(features[name])
        except InvalidRequest as error:
            raise InvalidRequest(f"Feature: {quote(name)} {error}") from error
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"Feature: {quote(name)} has a name that is not valid Unicode") from error
        entry = _field(1, key) + _field(2, feature)
        entries.append(_field(1, entry))
    return _field(1, b"".join(entries))


def _field(number: int, content: bytes) -> bytes:
    if len(content) < 128:
        return bytes((number << 3 | 2, len(content))) + content
    return field_start(number, len(content)) + content


def _examples(document: Mapping[str, Any]) -> Array:
    """Serialized tf.Examples, [rows], with the features of `context` that an example lacks. Raises InvalidRequest."""
    examples = document.get("examples")
    if type(examples) is not list:
        raise InvalidRequest(f"JSON Value: {quote(document)} Expecting 'examples' value to be a list/array")
    if not examples:
        raise InvalidRequest(f"JSON Value: {quote(document)} 'examples' value is an empty array")
    context = serialize_example(_features(document.get("context", {}), "context"))
    all_features = [_features(each, f"element {index} of 'examples'") for index, each in enumerate(examples)]
    return with_context(context, list(map(serialize_example, all_features)))


def _features(value: object, place: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise InvalidRequest(f"Example must be JSON object but {place} is {quote(value)}")
    return value


def _feature(value: Any) -> bytes:
    """A serialized Feature. Written by hand: a message object takes 3 us, and most features have few values."""
    values = value if type(value) is list else [value]
    kind = _kind(values[0]) if len(values) == 1 else _kind_of_all(values)
    if kind == "float":
        return _field(2, _field(1, _floats(values)))
    if kind == "int64":
        return _field(3, _field(1, _integers(values)))
    return _field(1, b"".join([_field(1, to_bytes(each)) for each in values])) if kind else b""


def _kind_of_all(values: list[Any]) -> str:
    """The kind of all values of a feature; empty if it has none. Raises InvalidRequest."""
    types = set(map(type, values))
    if not types <= _KINDS.keys() or (dict in types and not all(map(is_base64, values))):
        list(map(_kind, values))  # raises
    kinds = {_KINDS[each] for each in types}
    if len(kinds) > 1:
        raise InvalidRequest(f"has elements of different types: {', '.join(sorted(kinds))}; expecting one")
    return kinds.pop() if kinds else ""


def _floats(values: list[Any]) -> bytes:
    try:
        return struct.pack(f"<{len(values)}f", *values)
    except OverflowError:
        beyond = next(value for value in values if _FLOAT_MAX < abs(value) < inf)
        raise InvalidRequest(f"has element {quote(beyond)} out of the range of float") from None


def _integers(values: list[Any]) -> bytes:
    """Whole numbers as varints."""
    least, most = min(values), max(values)
    if least < _INT64_MIN or most > _INT64_MAX:
        beyond = next(value for value in values if not _INT64_MIN <= value <= _INT64_MAX)
        raise InvalidRequest(f"has element {quote(beyond)} out of the range of int64")
    if least >= 0 and most < 128:  # of one byte each
        return bytes(values)
    return b"".join([varint(value & _UINT64_MAX) for value in values])


def _kind(value: Any) -> str:
    if type(value) not in _KINDS or (type(value) is dict and not is_base64(value)):
        raise InvalidRequest(f"has element with unexpected JSON value: {quote(value)}")
    return _KINDS[type(value)]


# --- replies: results ---


def _encode_classify(outputs: Mapping[str, Array], count: int) -> bytes:
    """The results of classify: for each example a list of [label, score]. Raises InvalidRequest.

    A label is '' and a score 0.0 where the signature lacks that output.
    """
    arrays = {name: _matrix(name, array, count) for name, array in outputs.items()}
    shape = next(iter(arrays.values())).shape
    if any(array.shape != shape for array in arrays.values()):
        raise InvalidRequest(f"Outputs {CLASSES!r} and {SCORES!r} have different shapes; expected one column a class")
    labels = jsonable(CLASSES, arrays.get(CLASSES, np.full(shape, b"", STRING)))
    scores = arrays.get(SCORES, np.zeros(shape, np.float32))
    return dumps({"results": [list(map(_label_and_score, *row)) for row in zip(labels, scores, strict=True)]})


def _encode_regress(outputs: Mapping[str, Array], count: int) -> bytes:
    """The results of regress: for each example a number. Raises InvalidRequest."""
    array = outputs[REGRESSION]
    if array.shape not in ((count,), (count, 1)) or not is_number(array.dtype):
        raise _inconsistent(REGRESSION, array, f"[{count}] or [{count},1] numbers")
    return dumps({"results": jsonable(REGRESSION, array.reshape(count))})


def _matrix(name: str, array: Array, count: int) -> Array:
    fits = array.dtype == STRING if name == CLASSES else is_number(array.dtype)
    if array.ndim != 2 or len(array) != count or not fits:
        raise _inconsistent(name, array, f"[{count},?] {'strings' if name == CLASSES else 'numbers'}")
    return array


def _inconsistent(name: str, array: Array, expected: str) -> InvalidRequest:
    shape = ",".join(map(str, array.shape))
    return InvalidRequest(f"Tensor name: {name} has inconsistent batch size or type: [{shape}] expecting: {expected}")


def _label_and_score(label: object, score: Any) -> tuple[object, object]:
    return label, jsonable(SCORES, np.asarray(score))
