"""The `parameters` of a request, and of a tensor, whichever way they came. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.errors import InvalidRequest

Parameters = Mapping[str, object]

_UINT64_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class RequestParameters:
    """What we act on; others are accepted and mean nothing here.

    `signature` is empty where none is named, `timeout_s` is 0 where there is no limit; `priority` is 1 for the
    highest and 0 for the default.
    """

    signature: str = ""
    timeout_s: float = 0.0
    binary_outputs: bool = False
    final_response: bool = False
    priority: int = 0


_NONE = RequestParameters()


def request_parameters(parameters: Parameters) -> RequestParameters:
    """Raises InvalidRequest where one is of the wrong kind, or asks for what is not there."""
    if not parameters:
        return _NONE
    _refuse_sequences(parameters)
    return RequestParameters(
        text(parameters, "signature_name"),
        number(parameters, "timeout") / 1e6,
        flag(parameters, "binary_data_output"),
        flag(parameters, "triton_enable_empty_final_response"),
        number(parameters, "priority"),
    )


def flag(parameters: Parameters, name: str) -> bool:
    """False where it is left out."""
    value = parameters.get(name, False)
    if type(value) is not bool:
        raise InvalidRequest(f"Parameter {name!r} must be true or false, not {_shown(value)}")
    return value


def number(parameters: Parameters, name: str) -> int:
    """0 where it is left out."""
    value = parameters.get(name, 0)
    if type(value) is not int or not 0 <= value <= _UINT64_MAX:
        raise InvalidRequest(f"Parameter {name!r} must be a whole number from 0, not {_shown(value)}")
    return value


def text(parameters: Parameters, name: str) -> str:
    """Empty where it is left out."""
    value = parameters.get(name, "")
    if type(value) is not str:
        raise InvalidRequest(f"Parameter {name!r} must be a string, not {_shown(value)}")
    return value


def _refuse_sequences(parameters: Parameters) -> None:
    for name in ("sequence_id", "sequence_start", "sequence_end"):
        if parameters.get(name):
            raise InvalidRequest(f"Parameter {name!r} is not supported: no model here keeps state between requests")


def _shown(value: object) -> str:
    return repr(value)[:64]
