"""The parts in which a body or a message arrives, kept until it is whole."""

from __future__ import annotations

#: Parts of fewer bytes are joined. Chosen: beside so many bytes a part's own overhead is small.
_SHORT_BYTES = 1024


def keep_part(parts: list[bytes | bytearray], content: bytes) -> None:
    """Adds to the parts of a body or of a message. Short parts are joined, to save an object each."""
    last = parts[-1] if parts else None
    if len(content) >= _SHORT_BYTES:
        parts.append(content)
    elif isinstance(last, bytearray):
        last += content
    elif content:
        parts.append(bytearray(content))
