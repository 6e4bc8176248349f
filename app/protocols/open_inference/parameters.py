"""Parameters of a request or a tensor, from JSON or gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.codecs.json.parsing import quote
from app.core.errors import InvalidRequest

Parameters = Mapping[str, object]

_UINT64_MAX = 2**64 - 1

#: Types that `repr` shows quickly; values of other types may be long, and are quoted only as far as they are shown.
_SCALARS = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class RequestParameters:
    """The parameters of a request that have an effect; others are accepted and ignored.

    Attributes:
        signature: empty for the default.
        timeout_s: 0 if the request has none.
        priority: 1 for the highest level, 0 for the default.
    """

    signature: str = ""
    timeout_s: float = 0.0
    binary_outputs: bool = False
    final_response: bool = False
    priority: int = 0


_NONE = RequestParameters()


def request_parameters(parameters: Parameters) -> RequestParameters:
    """The request's parameters. Raises InvalidRequest if one has the wrong type or is not supported."""
    if not parameters:
        return _NONE
    _reject_sequences(parameters)
    return RequestParameters(
        text(parameters, "signature_name"),
        number(parameters, "timeout") / 1e6,
        flag(parameters, "binary_data_output"),
        flag(parameters, "triton_enable_empty_final_response"),
        number(parameters, "priority"),
    )


def flag(parameters: Parameters, name: str) -> bool:
    """The parameter as a bool; False if absent. Raises InvalidRequest."""
    value = parameters.get(name, False)
    if type(value) is not bool:
        raise InvalidRequest(f"Parameter {name!r} must be true or false, not {_shown(value)}")
    return value


def number(parameters: Parameters, name: str) -> int:
    """The parameter as a whole number; 0 if absent. Raises InvalidRequest."""
    value = parameters.get(name, 0)
    if type(value) is not int or not 0 <= value <= _UINT64_MAX:
        raise InvalidRequest(f"Parameter {name!r} must be a whole number from 0, not {_shown(value)}")
    return value


def text(parameters: Parameters, name: str) -> str:
    """The parameter as text; empty if absent. Raises InvalidRequest."""
    value = parameters.get(name, "")
    if type(value) is not str:
        raise InvalidRequest(f"Parameter {name!r} must be a string, not {_shown(value)}")
    return value


def _reject_sequences(parameters: Parameters) -> None:
    for name in ("sequence_id", "sequence_start", "sequence_end"):
        if parameters.get(name):
            raise InvalidRequest(f"Parameter {name!r} is not supported: no model here keeps state between requests")


def _shown(value: object) -> str:
    return repr(value)[:64] if type(value) in _SCALARS else quote(value)[:64]
