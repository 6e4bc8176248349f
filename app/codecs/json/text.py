"""JSON text to Python values, as leniently as TensorFlow Serving reads it. Pure."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any

import orjson

from app.codecs.json.long_arrays import Numbers, cut
from app.core.errors import InvalidRequest

#: Quoted values in error texts are cut here, as TensorFlow Serving's are.
QUOTED_BYTES = 256

#: A quick look whether there may be any of the spellings that json.loads does not know.
_UNUSUAL = re.compile(r"Inf(?!inity)|-NaN")

#: Strings, which are passed over, or those spellings.
#: A string without end matches too: otherwise each of its escaped quotes would be tried as a start.
_SPELLINGS = re.compile(r'"(?:[^"\\]|\\.)*+"?|-?\bInf\b|-NaN\b', re.DOTALL)
_WHITE = " \t\n\r"
_BLANK = re.compile(f"[{_WHITE}]*")


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a request's body, with Numbers for long arrays where `cut` puts them.

    orjson does the rest. What it rejects, and TensorFlow Serving accepts, is read again more
    slowly: NaN, Infinity and Inf, and anything at all after the end of the object.

    Raises InvalidRequest, with the position where there is one.
    """
    document: object = cut(body)
    if document is None:
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            document = _parse_leniently(body)
    if type(document) is not dict:
        raise InvalidRequest(f"JSON Value: {quote(document)} Is not object")
    return document


def parse_value(text: bytes) -> Any:
    """The one JSON value of a text, of any kind. As lenient as `parse`, but for anything after its end.

    Raises InvalidRequest, with the position where there is one.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_leniently(text, to_the_end=True)


def quote(value: object) -> str:
    """A JSON value for an error text, in at most 256 bytes, however large and deep it is."""
    parts: list[str] = []
    size = 0
    for part in json.JSONEncoder(ensure_ascii=False, default=_plain, skipkeys=True).iterencode(value):
        parts.append(part[: QUOTED_BYTES + 1])
        size += len(part)
        if size > QUOTED_BYTES:
            break
    text = "".join(parts).encode(errors="backslashreplace")
    if len(text) > QUOTED_BYTES:
        text = text[: QUOTED_BYTES - 3] + b"..."
    return text.decode(errors="ignore")


def _plain(value: object) -> object:
    return value.expanded() if isinstance(value, Numbers) else str(value)


def _parse_leniently(body: bytes, *, to_the_end: bool = False) -> object:
    try:
        text = body.decode("utf-8-sig")
        if _UNUSUAL.search(text):
            text = _SPELLINGS.sub(_spell_out, text)
        start = _BLANK.match(text)
        value, end = _DECODER.raw_decode(text, start.end() if start else 0)
    except UnicodeDecodeError as error:
        raise _parse_error("invalid UTF-8", error.start) from error
    except json.JSONDecodeError as error:
        raise _parse_error(
            error.msg.removesuffix(" at") if text.strip() else "The document is empty", error.pos
        ) from error
    except RecursionError as error:
        raise InvalidRequest("JSON Parse error: too deeply nested") from error
    except ValueError as error:
        raise InvalidRequest(f"JSON Parse error: {error}") from error
    if to_the_end and text[end:].strip(_WHITE):
        raise _parse_error("something after the value", end)
    return value


def _parse_error(problem: str, offset: int) -> InvalidRequest:
    return InvalidRequest(f"JSON Parse error: {problem} at offset: {offset}")


def _spell_out(found: re.Match[str]) -> str:
    return {"Inf": "Infinity", "-Inf": "-Infinity", "-NaN": "NaN"}.get(found[0], found[0])


def _finite(digits: str) -> float:
    """Infinity is accepted where it is written, not where a number is too large to be one."""
    value = float(digits)
    if isinf(value):
        raise ValueError(f"the number {digits[:32]} is too large")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite)
