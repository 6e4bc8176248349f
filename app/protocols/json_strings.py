"""Strings in TensorFlow Serving's JSON: plain text, or `{"b64": "..."}` for any bytes. Pure."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

from app.errors import InvalidRequest
from app.protocols.json_text import quote

_BASE64_KEYS = {"b64"}


def is_base64(value: object) -> bool:
    return type(value) is dict and value.keys() == _BASE64_KEYS and type(value["b64"]) is str


def to_bytes(value: object) -> bytes:
    """Raises InvalidRequest where `value` is no string and no base64 object, or cannot be decoded."""
    if type(value) is str:
        return _encode(value)
    if type(value) is dict and is_base64(value):
        return _decode_base64(value["b64"])
    if type(value) is bytes:
        return value
    raise InvalidRequest(f"JSON Value: {quote(value)} not formatted correctly for base64 data")


def from_bytes(value: bytes | str, binary: bool) -> str | dict[str, str]:
    """Bytes that are no UTF-8 go out as base64 even where text was meant: the reply stays valid JSON."""
    if isinstance(value, str):
        value = value.encode()
    if not binary:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": b64encode(value).decode()}


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"JSON Value: {quote(text)} has half of a surrogate pair; bytes that are no text go as base64"
        ) from error


def _decode_base64(text: str) -> bytes:
    """Standard alphabet. Missing padding and white space are forgiven, as TensorFlow Serving does."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        bare = "".join(text.split()).rstrip("=")
    try:
        return b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest("Unable to base64 decode") from error
