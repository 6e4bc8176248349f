"""The parameter `config` of a load: a ModelConfig whose fields override the model's own.

Fields of batching can be overridden. The other fields of a SavedModel follow from its files, and must have their
present values: so a client may send back the configuration that it read, with or without changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import orjson

from app.batching.policy import DEFAULTS
from app.core.batch_sizes import MOST_BATCH_ROWS, BatchSizes
from app.core.errors import InvalidRequest
from app.core.interfaces import NO_OVERRIDES, LoadOverrides
from app.protocols.open_inference.metadata import platform
from app.protocols.open_inference.parameters import Parameters

_SIZE = "max_batch_size"
_PREFERRED = "dynamic_batching.preferred_batch_size"
_DELAY = "dynamic_batching.max_queue_delay_microseconds"
_KNOBS = (_SIZE, _PREFERRED, _DELAY)
_CAN = f"A load can override {', '.join(_KNOBS)}"


def override_document(parameters: Parameters) -> Mapping[str, Any] | None:
    """The parameter `config`; None if there is none. Raises InvalidRequest, also for any other parameter."""
    for key in parameters:
        if key != "config":
            raise InvalidRequest(
                f"Parameter {key[:64]!r} is not supported; a load takes 'config', and files of the models folder only"
            )
    text = parameters.get("config")
    if text is None:
        return None
    try:
        document = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"Parameter 'config' is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequest("Parameter 'config' must be a string with a JSON object")
    return document


def read_overrides(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> LoadOverrides:
    """The overrides in a wanted configuration, compared with the present one; both as `config_document` writes them.

    Raises:
        InvalidRequest: a field cannot be overridden, or not by this value.
    """
    now, fields = dict(_fields(present)), dict(_fields(wanted))
    reason = _why_fixed(present)
    for path, value in fields.items():
        if (reason or path not in _KNOBS) and not _same(value, now.get(path)):
            raise InvalidRequest(
                f"Field {path[:64]!r} of the config cannot be overridden: {repr(value)[:64]} instead of "
                f"{repr(now.get(path))[:64]}. {reason or _CAN}"
            )
    return NO_OVERRIDES if reason else LoadOverrides(_batch_sizes(fields, now), _delay_ms(fields))


def _why_fixed(present: Mapping[str, Any]) -> str:
    """The reason why a model's batching cannot be overridden; empty if it can."""
    if present["platform"] == platform(pipeline=True):
        return "This model is a pipeline: its batches are those of its models, whose loads can override them"
    return "" if present[_SIZE] else "This model has no batches"


def _batch_sizes(fields: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[int, ...]:
    if _SIZE not in fields and _PREFERRED not in fields:
        return ()
    largest = _whole(_SIZE, fields.get(_SIZE, now[_SIZE]), 1, MOST_BATCH_ROWS)
    preferred = fields.get(_PREFERRED)
    if preferred is None:
        return tuple(now[_PREFERRED]) if largest == now[_SIZE] else BatchSizes.powers_of_two(largest).allowed
    if not isinstance(preferred, list):
        raise InvalidRequest(f"Field {_PREFERRED!r} must be a list of row counts, not {repr(preferred)[:64]}")
    sizes = [_whole(_PREFERRED, size, 1, largest) for size in preferred]
    if any(after <= before for before, after in pairwise(sizes)):
        raise InvalidRequest(f"Field {_PREFERRED!r} must be ascending row counts, not {repr(preferred)[:64]}")
    return tuple(sorted({*sizes, largest}))


def _delay_ms(fields: Mapping[str, Any]) -> float | None:
    if _DELAY not in fields:
        return None
    delay_ms = _whole(_DELAY, fields[_DELAY], 0, 2**63) / 1e3
    DEFAULTS.changed({"max_batch_delay_ms": delay_ms})
    return delay_ms


def _whole(path: str, value: object, least: int, most: int) -> int:
    """A whole number of a field; protobuf's JSON may write it as a string. Raises InvalidRequest."""
    number = _number(value)
    if number is None or not least <= number <= most:
        raise InvalidRequest(f"Field {path!r} must be a whole number from {least} to {most}, not {repr(value)[:64]}")
    return number


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    return value if type(value) is int else None


def _fields(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The paths and values of all fields that are no messages; lists are values."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _same(wanted: Any, present: Any) -> bool:
    """Whether two values of a field are equal in protobuf's JSON: empty is absent, and a number may be a string."""
    if isinstance(wanted, list) and isinstance(present, list):
        return len(wanted) == len(present) and all(map(_same, wanted, present))
    if isinstance(wanted, dict) and isinstance(present, dict):
        return all(_same(wanted.get(key), present.get(key)) for key in wanted.keys() | present.keys())
    if not wanted and not present:
        return True
    number = _number(wanted)
    return bool(wanted == present or (number is not None and number == _number(present)))
