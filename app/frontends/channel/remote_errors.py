"""Errors between processes: their kind, their text, and the seconds until a retry."""

from __future__ import annotations

from collections.abc import Mapping

from app.core import errors
from app.core.errors import ServingError

#: The kind of an exception that is not a ServingError, and so a bug in the engine.
BUG = "bug"

#: The error classes of core/errors.py by name.
KINDS: Mapping[str, type[ServingError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ServingError)
}


def encode_error(error: BaseException) -> tuple[str, str, float | None]:
    """The kind, text and `retry_after_s` of an error; its kind is the nearest base class in core/errors.py."""
    if not isinstance(error, ServingError):
        return BUG, repr(error), None
    kind = next(kind for kind in type(error).__mro__ if KINDS.get(kind.__name__) is kind)
    return kind.__name__, str(error), error.retry_after_s


def decode_error(kind: str, text: str, retry_after_s: float | None) -> Exception:
    """A ServingError, or a RuntimeError for a bug."""
    if kind == BUG:
        return RuntimeError(f"In the engine: {text}")
    error = KINDS[kind](text)
    if error.retry_after_s != retry_after_s:
        error.retry_after_s = retry_after_s
    return error
