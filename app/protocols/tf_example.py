"""JSON objects of features to serialized tf.Example. Pure.

Whole numbers and booleans become int64 features, decimals float, strings and base64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.errors import InvalidRequest
from app.protocols.json_strings import is_base64, to_bytes
from app.protocols.json_text import quote
from app.protocols.messages import message_class

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
