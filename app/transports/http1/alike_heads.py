"""Alike heads: a request's head is compared with a known one by a few operations on all of its bytes.

Most heads of a client differ only in the values of unread fields, which mostly have the same lengths: an id, a trace
context. So a known head is a form with gaps. A head is alike if the bytes in the gaps are text and, put into the form,
give the head again. That proves where the head ends, too: a form ends with its only empty line, and text has no line
end.

A connection expects that its next head is like its last one (`Recognised`), and looks among all that are known
(known_heads.py) if it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

from app.transports.http.head import RequestHead
from app.transports.http.http_api import HttpApi
from app.transports.request_id import MOST_BYTES, checked

#: The bytes that a value may have (RFC 9110, section 5.5), and those that most values have.
_TEXT = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])
_VISIBLE = bytes(range(0x21, 0x7F))

_LINE_END = b"\r\n"

#: A longer request line is not remembered (chosen).
MAX_LINE_BYTES = 128

#: The blanks that may stand around a value (RFC 9110, section 5.6.3).
BLANKS = b" \t"


class ParsedHead(NamedTuple):
    """The meaning of a head on the fast path; requests with equal ones may differ in their length."""

    protocol: HttpApi
    head: RequestHead
    keep_alive: bool
    most_bytes: int  # of the body


#: The meaning of a head, its Content-Length (0 without one), its x-request-id (empty without one), whether it has a
#: traceparent, its length, and the known heads that the next head on the connection may be like.
Recognised = tuple[ParsedHead, int, bytes, bool, int, "AlikeHeads | None"]


class Layout:
    """The fields of a head: pieces that stay and values that vary, alternately, each as long as it was.

    Args:
        pieces: the first and the last of them stay.
        length_at: the number of the value that is the Content-Length; -1 without one.
        id_at: the number of the value that is the client's id of the request; -1 without one.
        credential: where its lines are, counted from the line end before the first field; None without one.
        has_parent: there is a traceparent.

    Attributes:
        form: what tells it from other layouts.
        size: bytes of the fields, with the line end before them and the empty line.
    """

    __slots__ = ("credential", "cut", "form", "has_parent", "id_at", "length_at", "size", "stays")

    def __init__(
        self,
        pieces: Sequence[bytes],
        length_at: int = -1,
        id_at: int = -1,
        credential: slice | None = None,
        *,
        has_parent: bool = False,
    ) -> None:
        gaps = "".join(
            [f"{len(stays)}x{len(value)}s" for stays, value in zip(pieces[:-1:2], pieces[1::2], strict=True)]
        )
        self.stays = b"%b".join([piece.replace(b"%", b"%%") for piece in pieces[::2]])
        self.form = self.stays, gaps
        self.cut = Struct(gaps).unpack_from
        self.size = sum(map(len, pieces))
        self.length_at = length_at
        self.id_at = id_at
        self.credential = credential
        self.has_parent = has_parent

    def credential_in(self, head: bytes, start: int) -> bytes:
        """The credential's lines in a head of this layout whose fields begin at `start`; empty without one."""
        at = self.credential
        return b"" if at is None else head[start + at.start : start + at.stop]


#: The common part of alike heads: the layout, the request line, and the credential's lines, empty without one.
Common = tuple[Layout, bytes, bytes]


class AlikeHeads:
    """Heads with the same layout, request line and credential: they mean the same.

    Args:
        head: one of them, whose fields begin at `start` with the line end before them.
        others: all alike heads that are known.
        keep_same: remembers a head that came twice in a row.
    """

    __slots__ = (
        "_credential", "_credential_at", "_cut", "_end", "_has_parent", "_id_at", "_keep_same", "_last", "_layout",
        "_length_at", "_line", "_others", "_parsed", "_start", "_stays",
    )  # fmt: skip

    def __init__(
        self,
        head: bytes,
        start: int,
        layout: Layout,
        parsed: ParsedHead,
        *,
        others: Mapping[Common, AlikeHeads],
        keep_same: Callable[[bytes, Recognised], Recognised],
    ) -> None:
        self._parsed = parsed
        self._line = head[:start]
        self._start, self._end = start, start + layout.size
        self._others = others
        self._keep_same = keep_same
        self._last: tuple[bytes, ...] | None = None  # values

        # The layout's own: to look them up there takes longer.
        self._layout = layout
        self._cut, self._stays = layout.cut, layout.stays
        self._length_at, self._id_at, self._has_parent = layout.length_at, layout.id_at, layout.has_parent
        at = layout.credential
        self._credential_at = None if at is None else slice(start + at.start, start + at.stop)
        self._credential = layout.credential_in(head, start)

    def read(self, received: bytes) -> Recognised | None:
        """The meaning of the head that `received` begins with; None if that is not alike, or not whole."""
        # 1. It may have another request line, and all else be alike.
        if not received.startswith(self._line):
            at = received.find(_LINE_END, 0, MAX_LINE_BYTES + len(_LINE_END))
            other = None if at < 0 else self._others.get((self._layout, received[:at], self._credential))
            return None if other is None else other.read(received)

        # 2. What stays is there, and what varies is text; in most of it every byte is visible.
        values = self._values(received)
        if values is None:
            return None
        odd = b"".join(values).translate(None, _VISIBLE)
        if odd and not is_text(odd):
            return None

        # 3. The length and the id are the request's own.
        length, request_id = 0, b""
        if self._length_at >= 0:
            digits = values[self._length_at]
            if not digits.isdigit() or (length := int(digits)) > self._parsed.most_bytes:
                return None
        if self._id_at >= 0:
            request_id = values[self._id_at]
            if odd or len(request_id) > MOST_BYTES:
                request_id = checked(request_id.strip(BLANKS))
        recognised: Recognised = self._parsed, length, request_id, self._has_parent, self._end, self

        # 4. Equal heads are told by their bytes.
        if values == self._last:
            recognised = self._keep_same(received[: self._end], recognised)
        self._last = values
        return recognised

    def _values(self, received: bytes) -> tuple[bytes, ...] | None:
        """The values that vary, if the pieces that stay and the credential are there."""
        if len(received) < self._end:
            return None
        values = self._cut(received, self._start)
        if not received.startswith(self._stays % values, self._start):
            return None
        at = self._credential_at
        return values if at is None or compare_digest(received[at], self._credential) else None


def is_text(value: bytes) -> bool:
    """Has the value only bytes that a field's value may have?"""
    return not value.translate(None, _TEXT)
