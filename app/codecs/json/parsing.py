"""JSON text to Python values, as leniently as TensorFlow Serving reads it."""

from __future__ import annotations

import json
import re
import sys
from math import inf, isinf
from typing import Any

import orjson

from app.codecs.at_once import LENIENT, SHORT_BYTES, check_text
from app.codecs.json.long_arrays import SHORTEST_BYTES, Numbers, parse_long_arrays
from app.core.errors import InvalidRequest

#: The longest quoted value in an error text; TensorFlow Serving's limit.
QUOTED_BYTES = 256

#: Finds texts that may have a number which json.loads cannot read.
_UNUSUAL = re.compile(r"Inf(?!inity)|-NaN")

#: A string. An unterminated one matches, too: otherwise each escaped quote in it would be tried as the start of a
#: string, which takes quadratic time.
_STRING = re.compile(r'("(?:[^"\\]|\\.)*+"?)', re.DOTALL)
_WHITE = " \t\n\r"
_BLANK = re.compile(f"[{_WHITE}]*")


def parse(body: bytes, most: float = inf, short_bytes: int = SHORT_BYTES) -> dict[str, Any]:
    """The JSON object in a request's body, with `Numbers` in the places that `parse_long_arrays` names.

    A text that orjson rejects is parsed again by a slower parser, which accepts what TensorFlow Serving accepts: NaN,
    Infinity and Inf, and any text after the end of the object.

    Args:
        most: the most values, unless the body has fewer than `short_bytes`.

    Raises:
        InvalidRequest: with the position of the error, if there is one.
        TakesLong: there are more values.
    """
    document: object = parse_long_arrays(body, most) if len(body) >= SHORTEST_BYTES else None
    if document is None:
        if len(body) >= short_bytes:
            check_text(body, most)
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            if len(body) >= short_bytes:
                check_text(body, most / LENIENT)
            document = _parse_leniently(body)
    if type(document) is not dict:
        raise InvalidRequest(f"JSON Value: {quote(document)} Is not object")
    return document


def parse_value(text: bytes) -> Any:
    """A JSON value of any type. As lenient as `parse`, except that no text may follow. Raises InvalidRequest."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_leniently(text, to_the_end=True)


def quote(value: object) -> str:
    """A JSON value of any size for an error text, in at most QUOTED_BYTES bytes."""
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


class _TooLarge(ValueError):
    """A number that no float holds."""


def _finite(digits: str) -> float:
    """A decimal number in JSON. Raises ValueError if it is too large: only the word Infinity means infinity."""
    value = float(digits)
    if isinf(value):
        raise _TooLarge(f"the number {digits[:32]} is too large")
    return value


#: Texts that may have a number which no float holds have an exponent of three digits, or more digits than this.
_EXPONENT, _MOST_DIGITS = re.compile(r"[eE]\+?\d{3}"), 308
_PLAIN, _CHECKING = json.JSONDecoder(), json.JSONDecoder(parse_float=_finite)


def decoder_of(text: str) -> json.JSONDecoder:
    """The slower parser, which accepts NaN and Infinity, with a call of Python for each number only where needed."""
    long = max(map(len, text.split(","))) > _MOST_DIGITS
    return _CHECKING if long or _EXPONENT.search(text) else _PLAIN


def _plain(value: object) -> object:
    return value.expanded() if isinstance(value, Numbers) else str(value)


def _parse_leniently(body: bytes, *, to_the_end: bool = False) -> object:
    try:
        text = body.decode("utf-8-sig")
        if _UNUSUAL.search(text):
            text = _spelled_out(text)
        start = _BLANK.match(text)
        value, end = decoder_of(text).raw_decode(text, start.end() if start else 0)
    except UnicodeDecodeError as error:
        raise _parse_error("invalid UTF-8", error.start) from error
    except json.JSONDecodeError as error:
        raise _parse_error(
            error.msg.removesuffix(" at") if text.strip() else "The document is empty", error.pos
        ) from error
    except RecursionError as error:
        raise InvalidRequest("JSON Parse error: too deeply nested") from error
    except _TooLarge as error:
        raise InvalidRequest(f"JSON Parse error: {error}") from error
    except ValueError as error:  # of int(), whose text names a setting of Python
        digits = sys.get_int_max_str_digits()
        raise InvalidRequest(f"JSON Parse error: a whole number has more than {digits} digits") from error
    if to_the_end and text[end:].strip(_WHITE):
        raise _parse_error("something after the value", end)
    return value


def _parse_error(problem: str, offset: int) -> InvalidRequest:
    return InvalidRequest(f"JSON Parse error: {problem} at offset: {offset}")


def _spelled_out(text: str) -> str:
    """The text with Inf and -NaN outside of strings spelled as json.loads reads them, all at once."""
    parts = _STRING.split(text)  # a string stands at each odd place
    between = '"'.join(parts[::2])  # no quote is left there
    parts[::2] = between.replace("Infinity", "Inf").replace("Inf", "Infinity").replace("-NaN", "NaN").split('"')
    return "".join(parts)
