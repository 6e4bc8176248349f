"""Errors between processes: kind, text, and when a retry is worthwhile."""

from __future__ import annotations

from collections.abc import Iterator

from app.core import errors
from app.core.errors import ServingError

#: Stands for a bug of ours, of which callers see nothing.
BUG = "bug"


def _kinds(base: type[ServingError]) -> Iterator[type[ServingError]]:
    yield base
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from _kinds(kind)


KINDS = {kind.__name__: kind for kind in _kinds(ServingError)}


def encode_error(error: BaseException) -> tuple[str, str, float | None]:
    """By the nearest kind that core/errors.py has."""
    if not isinstance(error, ServingError):
        return BUG, repr(error), None
    kind = next(kind for kind in type(error).__mro__ if KINDS.get(kind.__name__) is kind)
    return kind.__name__, str(error), error.retry_after_s


def decode_error(kind: str, text: str, retry_after_s: float | None) -> Exception:
    if kind == BUG:
        return RuntimeError(f"In the engine: {text}")
    error = KINDS[kind](text)
    if error.retry_after_s != retry_after_s:
        error.retry_after_s = retry_after_s
    return error
