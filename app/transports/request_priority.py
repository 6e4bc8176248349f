"""The priority of a request in an HTTP header or in gRPC metadata; the same scale as Open Inference's `priority`."""

from __future__ import annotations

from app.core.errors import InvalidRequest

#: The name of the header and of the metadata key.
PRIORITY_HEADER = b"x-request-priority"

_UINT64_MAX = 2**64 - 1


def read_priority(value: str) -> int:
    """1 for the highest, 0 for the default. Raises InvalidRequest."""
    if not (value.isascii() and value.isdigit()) or len(value) > 20 or int(value) > _UINT64_MAX:
        raise InvalidRequest(
            f"X-Request-Priority must be a whole number from 0, 1 being the highest, not {value[:64]!r}"
        )
    return int(value)
