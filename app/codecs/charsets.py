"""The charset that Content-Type names, and the conversion of text bodies to UTF-8.

JSON is UTF-8 (RFC 8259, section 8.1), and so is a body without a named charset. Some clients send UTF-16 or Latin-1 and
say so; such a body is converted once, before it is read. A charset has no meaning for tensors in bytes.

Without a byte order mark the order of UTF-16 follows from the first character, which is ASCII in JSON: one of its two
bytes is 0 (RFC 4627, section 3).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from app.codecs.errors import UnsupportedMediaType
from app.codecs.format_registry import BODY_FORMATS, JSON
from app.codecs.media_types import media_type
from app.core.errors import InvalidRequest

#: Python's name by the names that clients use; empty for UTF-8 and its subsets.
_KNOWN = {
    "": "",
    **dict.fromkeys(("utf-8", "utf8", "us-ascii", "ascii"), ""),
    **dict.fromkeys(("utf-16", "utf16"), "utf-16"),
    **dict.fromkeys(("utf-16le", "utf16le", "utf-16-le"), "utf-16-le"),
    **dict.fromkeys(("utf-16be", "utf16be", "utf-16-be"), "utf-16-be"),
    **dict.fromkeys(("iso-8859-1", "iso_8859-1", "iso8859-1", "latin1", "latin-1", "l1"), "latin-1"),
}
_READ = "utf-8, utf-16, utf-16le, utf-16be, iso-8859-1"

#: A parameter of Content-Type, a quoted value as a whole (RFC 9110, section 5.6.6).
_PARAMETER = re.compile(rb';([^=;]*)=("(?:[^"\\]|\\.)*"|[^;]*)')

#: Bodies that are not text.
_TENSORS = frozenset(
    {"application/octet-stream", *[name for each in BODY_FORMATS if each is not JSON for name in each.media_types]}
)

#: Bytes that are converted at once; an even number (chosen: 50 us).
_SLICE_BYTES = 64 * 1024

_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"


def named_charset(content_type: bytes | None) -> str:
    """The charset to convert from, whatever the media type; empty for UTF-8, which is the default.

    Raises:
        UnsupportedMediaType: the text lists the charsets that are read.
    """
    name = _name(content_type)
    if name not in _KNOWN:
        raise UnsupportedMediaType(f"Content-Type names the charset {name[:64]!r}; expected one of {_READ}")
    return _KNOWN[name]


def text_charset(content_type: bytes | None) -> str:
    """The charset of a body of text, as by `named_charset`; empty for any other body."""
    return "" if media_type(content_type or b"") in _TENSORS else named_charset(content_type)


def names_another(content_type: bytes | None) -> bool:
    """Whether Content-Type names a charset other than UTF-8, known or not."""
    return _KNOWN.get(_name(content_type)) != ""


def in_utf8(body: bytes, charset: str) -> Iterator[bytes]:
    """The text in UTF-8, in pieces, without a byte order mark.

    Raises:
        InvalidRequest: the bytes are no text in this charset.
    """
    decoder = codecs.getincrementaldecoder(_order(body) if charset == "utf-16" else charset)()
    mark = _MARK  # only the first character can be one
    for at in range(0, len(body), _SLICE_BYTES):
        part = body[at : at + _SLICE_BYTES]
        try:
            text = decoder.decode(part, final=at + _SLICE_BYTES >= len(body))
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"The body is not {charset}, which Content-Type names: {error.reason} near byte {at + error.start}"
            ) from None
        yield text.removeprefix(mark).encode()
        mark = ""


def _order(body: bytes) -> str:
    """The byte order: little-endian by the mark or by the first character's zero byte, else big (RFC 2781, 4.3)."""
    little = body.startswith(codecs.BOM_UTF16_LE) or (len(body) > 1 and body[1] == 0 != body[0])
    return "utf-16-le" if little else "utf-16-be"


def _name(content_type: bytes | None) -> str:
    """The named charset in lower case; empty if there is none."""
    if content_type is None or b";" not in content_type:
        return ""
    for name, value in _PARAMETER.findall(content_type):
        if name.strip().lower() == b"charset":
            return str(value.strip(b' \t"').decode("latin-1").lower())
    return ""
