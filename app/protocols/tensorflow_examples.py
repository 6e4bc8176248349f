"""Classify and regress in TensorFlow Serving's JSON: examples in, results out. Pure.

What decides is the names of a signature's inputs and outputs, not its method name: TensorFlow 2
exports signatures of the classic form under predict's method name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from app.errors import InvalidRequest
from app.inference import STRING, Array, ModelSignature
from app.protocols.json_arrays import dumps, jsonable
from app.protocols.json_scalars import is_number
from app.protocols.json_text import quote
from app.protocols.tensorflow_call import Call
from app.protocols.tf_example import serialize_example

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
