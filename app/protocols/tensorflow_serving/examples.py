"""What classify and regress have in common in TensorFlow Serving's REST API.

JSON objects of features to serialized tf.Example. Pure.

Whole numbers and booleans become int64 features, decimals float, strings and base64 bytes.


Classify and regress in TensorFlow Serving's JSON: examples in, results out. Pure.

What decides is the names of a signature's inputs and outputs, not its method name: TensorFlow 2
exports signatures of the classic form under predict's method name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from app.codecs.json.parsing import quote
from app.codecs.json.scalars import is_base64, is_number, to_bytes
from app.codecs.json.writing import dumps, jsonable
from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, ModelSignature


@dataclass(frozen=True, slots=True)
class Call:
    """A request body as understood: what to compute (`outputs`), and how its result is written.

    `encode` takes the outputs by name; it raises InvalidRequest where they have no form in the reply asked for.
    """

    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    encode: Callable[[Mapping[str, Array]], bytes]


_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_FLOAT_MAX = float(np.finfo(np.float32).max)


def serialize_example(features: Mapping[str, Any]) -> bytes:
    """Raises InvalidRequest naming the feature that has no form in tf.Example."""
    example = message_class("tensorflow.Example")()
    for name, value in features.items():
        try:
            _fill(example.features.feature[name], value if type(value) is list else [value])
        except InvalidRequest as error:
            raise InvalidRequest(f"Feature: {quote(name)} {error}") from error
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"Feature: {quote(name)} has a name that is no text") from error
    serialized: bytes = example.SerializeToString(deterministic=True)
    return serialized


def _fill(feature: Any, values: list[Any]) -> None:
    kinds = {_kind(value) for value in values}
    if len(kinds) > 1:
        raise InvalidRequest(f"has elements of different types: {', '.join(sorted(kinds))}; expecting one")
    if "bytes" in kinds:
        feature.bytes_list.value.extend(map(to_bytes, values))
    elif "float" in kinds:
        feature.float_list.value.extend(map(_check_float, values))
    elif "int64" in kinds:
        feature.int64_list.value.extend(map(_check_int64, values))


def _kind(value: Any) -> str:
    if isinstance(value, int):  # bool is one
        return "int64"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str) or is_base64(value):
        return "bytes"
    raise InvalidRequest(f"has element with unexpected JSON value: {quote(value)}")


def _check_float(value: float) -> float:
    if _FLOAT_MAX < abs(value) < float("inf"):
        raise InvalidRequest(f"has element {quote(value)} out of the range of float")
    return value


def _check_int64(value: int) -> int:
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise InvalidRequest(f"has element {quote(value)} out of the range of int64")
    return int(value)


_INPUT = "inputs"
_CLASSES, _SCORES = "classes", "scores"
_REGRESSION = "outputs"


def classify(document: Mapping[str, Any], signature: ModelSignature) -> Call:
    """Raises InvalidRequest where the examples do not parse or the signature cannot classify."""
    _check_input(signature, "classify")
    wanted = tuple(name for name in (_CLASSES, _SCORES) if name in signature.outputs)
    if not wanted:
        raise _unfit(signature, "classify", f"output {_CLASSES!r} or {_SCORES!r}", signature.outputs)
    examples = _examples(document)
    return Call({_INPUT: examples}, wanted, partial(_encode_classify, count=len(examples)))


def regress(document: Mapping[str, Any], signature: ModelSignature) -> Call:
    """Raises InvalidRequest where the examples do not parse or the signature cannot regress."""
    _check_input(signature, "regress")
    if _REGRESSION not in signature.outputs:
        raise _unfit(signature, "regress", f"output {_REGRESSION!r}", signature.outputs)
    examples = _examples(document)
    return Call({_INPUT: examples}, (_REGRESSION,), partial(_encode_regress, count=len(examples)))


def _encode_classify(outputs: Mapping[str, Array], count: int) -> bytes:
    """A list of [label, score] an example; what the signature lacks is '' or 0.0. Raises InvalidRequest."""
    arrays = {name: _matrix(name, array, count) for name, array in outputs.items()}
    shape = next(iter(arrays.values())).shape
    if any(array.shape != shape for array in arrays.values()):
        raise InvalidRequest(f"Outputs {_CLASSES!r} and {_SCORES!r} must have one column a class each")
    labels = jsonable(_CLASSES, arrays.get(_CLASSES, np.full(shape, b"", STRING)))
    scores = arrays.get(_SCORES, np.zeros(shape, np.float32))
    return dumps({"results": [list(map(_label_and_score, *row)) for row in zip(labels, scores, strict=True)]})


def _encode_regress(outputs: Mapping[str, Array], count: int) -> bytes:
    """A number an example. Raises InvalidRequest."""
    array = outputs[_REGRESSION]
    if array.shape not in ((count,), (count, 1)) or not is_number(array.dtype):
        raise _inconsistent(_REGRESSION, array, f"[{count}] or [{count},1] numbers")
    return dumps({"results": jsonable(_REGRESSION, array.reshape(count))})


def _examples(document: Mapping[str, Any]) -> Array:
    """One serialized tf.Example a row, each with the features of `context` that it lacks."""
    examples = document.get("examples")
    if type(examples) is not list:
        raise InvalidRequest(f"JSON Value: {quote(document)} Expecting 'examples' value to be a list/array")
    if not examples:
        raise InvalidRequest(f"JSON Value: {quote(document)} 'examples' value is an empty array")
    context = _features(document.get("context", {}), "context")
    array = np.empty(len(examples), STRING)
    for index, example in enumerate(examples):
        features = _features(example, f"element {index} of 'examples'")
        array[index] = serialize_example({**context, **features})
    return array


def _check_input(signature: ModelSignature, action: str) -> None:
    if signature.inputs.keys() != {_INPUT} or signature.inputs[_INPUT].dtype != STRING:
        raise _unfit(signature, action, f"the one input {_INPUT!r} of type string", signature.inputs)


def _unfit(signature: ModelSignature, action: str, expected: str, found: Mapping[str, object]) -> InvalidRequest:
    names = ", ".join(f"{name!r} {spec}" for name, spec in sorted(found.items())) or "none"
    return InvalidRequest(f"Signature {signature.name!r} cannot {action}: expecting {expected}, but it has {names}")


def _features(value: object, place: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise InvalidRequest(f"Example must be JSON object but {place} is {quote(value)}")
    return value


def _matrix(name: str, array: Array, count: int) -> Array:
    fits = array.dtype == STRING if name == _CLASSES else is_number(array.dtype)
    if array.ndim != 2 or len(array) != count or not fits:
        raise _inconsistent(name, array, f"[{count},?] {'strings' if name == _CLASSES else 'numbers'}")
    return array


def _inconsistent(name: str, array: Array, expected: str) -> InvalidRequest:
    shape = ",".join(map(str, array.shape))
    return InvalidRequest(f"Tensor name: {name} has inconsistent batch size or type: [{shape}] expecting: {expected}")


def _label_and_score(label: object, score: Any) -> tuple[object, object]:
    return label, jsonable(_SCORES, np.asarray(score))
