"""Heads by meaning: a head is recognised by the fields that Ferry reads, whatever the others hold.

Clients repeat their heads but for some values: an id and a trace context of each request's own, and the length of its
body. Parsing each head anew costs as much as answering it. So a head is recognised, cheapest first,

1. by its bytes,
2. by its layout: it is as long as a known head, and equal but for the values of unread fields (alike_heads.py),
3. by its lines: the request line and the lines of the fields that are read are those of a known head.

All three rest on one law (tests/transports/http1/test_known_heads.py). The result of `HeadParser` depends only on the
request line, the lines of fields that are read, and the one Content-Length, if all other lines are fields: a token, a
colon, text. Hence these rules:

- What frames a request or its connection is read, and compared byte for byte (`FRAMING`).
- A line is left out only if it is proven an unread field. Its name is a token, and the colon follows at once. Its value
  is text (RFC 9110, 5.5), without line feed, carriage return or NUL. A folded line is no field.
- A Content-Length is there once at most, in digits. The request's own is returned.
- So is the first x-request-id, which no protocol reads: heads that differ in it mean the same. Whether there is a
  traceparent is told, too, so that traces look for one only then.
- A credential is read, but may vary within a layout, so that callers with keys of one length share it. It is a part of
  what the meaning is found by, byte for byte.
- Whatever is not proven goes to `HeadParser`, which decides alone; only heads that it accepted are learnt.

Every cache is bounded. A head's bytes are kept when they come twice in a row among heads of their layout, request line
and credential. Heads that never repeat would only push out heads that do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.core.bounded_cache import BoundedCache
from app.transports.http.connections.connection_limits import MOST_HEADERS
from app.transports.http.direct.fast_path import MAX_HEADS, FastPath
from app.transports.http.head import READ_FIELDS
from app.transports.http1.alike_heads import (
    BLANKS,
    MAX_LINE_BYTES,
    AlikeHeads,
    Common,
    Layout,
    ParsedHead,
    Recognised,
    is_text,
)
from app.transports.http1.head_parser import HeadParser
from app.transports.request_id import REQUEST_ID, id_in
from app.transports.trace_context import TRACEPARENT

_LINE_END = b"\r\n"
_CONTENT_LENGTH = b"content-length"

#: Where a request ends, which host it is for, whether the connection stays, and whether it is one for the fast path.
FRAMING = frozenset(
    {
        b"connection",
        b"content-encoding",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

#: A name and the colon behind it.
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:")

#: The most that is read of a head that is kept: at most 2 MiB of each kind (chosen, with MAX_HEADS). Alike heads
#: hold their layout and last values, too: measured up to 24 KiB each, with a hundred long names.
_MAX_READ_BYTES = 2048

#: A longer head is not recognised (chosen: room for a token and cookies; looking at its lines takes 10 ns a byte).
_MAX_HEAD_BYTES = 8192

#: The most layouts that are kept. Chosen: most clients send heads of few lengths.
_MAX_LAYOUTS = 256

#: Names of fields that are remembered, with their kinds (chosen).
_MAX_NAMES, _MAX_NAME_BYTES = 1024, 64

#: The most digits of a Content-Length; more are left to HeadParser.
_MAX_DIGITS = 15

#: The kinds of fields; the last three are unread.
_NO_FIELD, _READ, _CREDENTIAL, _LENGTH, _UNREAD, _ID, _PARENT = range(7)
_IS_READ = frozenset({_READ, _CREDENTIAL})
_OWN_KINDS = {_CONTENT_LENGTH: _LENGTH, REQUEST_ID: _ID, TRACEPARENT: _PARENT}

#: The request line and the lines of fields that are read.
_Read = tuple[bytes, tuple[bytes, ...]]


class KnownHeads:
    """The heads that HeadParser has accepted for the fast path."""

    def __init__(self, fast_path: FastPath) -> None:
        self.fast_path = fast_path
        self._read_names: set[bytes] = {*FRAMING, *READ_FIELDS}
        self._credentials = frozenset(fast_path.credentials)
        self._kinds: BoundedCache[bytes, int] = BoundedCache(_MAX_NAMES)
        self._max_bytes = 0

        # The known heads, for each of the three ways.
        self._same: BoundedCache[bytes, Recognised] = BoundedCache(MAX_HEADS)
        self._layouts: BoundedCache[int, Layout] = BoundedCache(_MAX_LAYOUTS)  # by the length behind the request line
        self._alike: BoundedCache[Common, AlikeHeads] = BoundedCache(MAX_HEADS)
        self._meanings: BoundedCache[_Read, ParsedHead] = BoundedCache(MAX_HEADS)

    def find(self, head: bytes) -> Recognised | None:
        """The meaning of a head, its empty line included; None if HeadParser has to parse it."""
        # 1. By its bytes.
        same = self._same.get(head)
        if same is not None:
            return same
        if len(head) > self._max_bytes:
            return None

        # 2. By its layout.
        start = head.find(_LINE_END)
        layout = self._layouts.get(len(head) - start)
        if layout is not None:
            alike = self._alike.get((layout, head[:start], layout.credential_in(head, start)))
            recognised = None if alike is None else alike.read(head)
            if recognised is not None:
                return recognised

        # 3. By its lines.
        return self._by_lines(head, start, layout)

    def _by_lines(self, head: bytes, start: int, known: Layout | None) -> Recognised | None:
        """The meaning of a head by its lines; its layout is learnt.

        `start`: where its fields begin. `known`: the layout of fields of this length, which the head may have.
        """
        lines = head.split(_LINE_END)
        fields = self._fields(lines)
        if fields is None:
            return None
        parsed = self._meanings.get((lines[0], fields[0]))
        if parsed is None:
            return None
        layout = self._layout(lines)
        if known is not None and known.form == layout.form:
            layout = known
        else:
            self._layouts.keep(len(head) - start, layout)
        alike = AlikeHeads(head, start, layout, parsed, others=self._alike, keep_same=self._keep_same)
        if start <= MAX_LINE_BYTES:
            self._alike.keep((layout, lines[0], layout.credential_in(head, start)), alike)
        return alike.read(head)

    def admit(self, parser: HeadParser) -> Recognised | None:
        """The meaning of a parsed head, which is learnt, if its request takes the fast path; else None. See `find`."""
        if not parser.usual:
            return None
        asked = self.fast_path.read(parser.target, parser.headers)
        if asked is None or parser.length > asked[0].options.max_body_bytes:
            return None
        api, head = asked
        parsed = ParsedHead(api, head, parser.keep_alive, api.options.max_body_bytes)
        self._learn(parser, parsed)
        has_parent = any(name == TRACEPARENT for name, _ in parser.headers)
        return parsed, parser.length, id_in(parser.headers), has_parent, parser.end, None

    def _learn(self, parser: HeadParser, parsed: ParsedHead) -> None:
        """Learns the meaning of a head that HeadParser has accepted."""
        # 1. A caller's name is read, too.
        rule = parsed.protocol.options.callers
        caller = b"" if rule is None else rule.header
        if caller in _OWN_KINDS:
            return  # a field is either read or the request's own
        if caller and caller not in self._read_names:
            self._read_names.add(caller)
            for cache in (self._kinds, self._same, self._layouts, self._alike, self._meanings):
                cache.clear()

        # 2. The meaning is kept, if the lines of the head prove it.
        self._max_bytes = min(parser.limits.max_head_bytes, _MAX_HEAD_BYTES)
        if parser.end > self._max_bytes:
            return
        lines = parser.raw[: parser.end].split(_LINE_END)
        fields = self._fields(lines)
        if fields is None or fields[1] != parser.length:
            return
        read = fields[0]
        if len(lines[0]) + sum(map(len, read)) <= _MAX_READ_BYTES:
            self._meanings.keep((lines[0], read), parsed)

    def _keep_same(self, head: bytes, recognised: Recognised) -> Recognised:
        """Keeps a head that came twice, unless it is long: the next one is looked up by its bytes, too."""
        if len(head) > _MAX_READ_BYTES:
            return recognised
        return self._same.keep(head, (*recognised[:-1], None))

    def _fields(self, lines: Sequence[bytes]) -> tuple[tuple[bytes, ...], int] | None:
        """The lines of fields that are read, and the Content-Length; None if a line is not proven to be a field."""
        if len(lines) - 3 > MOST_HEADERS:
            return None
        read, unread, length = [], [], -1
        for line in lines[1:-2]:
            name = line[: line.find(b":") + 1]  # empty without a colon
            kind = self._kind(name)
            if kind >= _UNREAD:
                unread.append(line)
            elif kind in _IS_READ:
                read.append(line)
            elif kind == _LENGTH and length < 0:
                length = _digits(line[len(name) :].strip(b" "))
                if length < 0:
                    return None
            else:  # no field, or another Content-Length
                return None
        if not is_text(b"".join(unread)):
            return None
        return tuple(read), max(length, 0)

    def _kind(self, name: bytes) -> int:
        """The kind of a field by its name, which ends with the colon."""
        kind = self._kinds.get(name)
        if kind is not None:
            return kind
        kind = _NO_FIELD
        if _NAME.fullmatch(name):
            lower = name[:-1].lower()
            kind = _READ if lower in self._read_names else _OWN_KINDS.get(lower, _UNREAD)
            if lower in self._credentials:
                kind = _CREDENTIAL
        if len(name) <= _MAX_NAME_BYTES:
            self._kinds.keep(name, kind)
        return kind

    def _layout(self, lines: Sequence[bytes]) -> Layout:
        """The layout of a head that was recognised by its lines."""
        pieces, varies = [b""], []  # bytes that stay and values that vary, alternately
        credential: slice | None = None
        for line in lines[1:-2]:
            name = line[: line.find(b":") + 1]
            kind = self._kind(name)
            if kind == _READ:
                pieces[-1] += _LINE_END + line
                continue
            if kind == _CREDENTIAL:
                begin = sum(map(len, pieces)) + len(_LINE_END)
                credential = slice(begin if credential is None else credential.start, begin + len(line))
            value = line[len(name) :].strip(BLANKS)
            before, _, after = line.rpartition(value) if value else (line, b"", b"")
            pieces[-1] += _LINE_END + before
            pieces += value, after
            varies.append(kind)
        pieces[-1] += 2 * _LINE_END
        length_at, id_at = (varies.index(kind) if kind in varies else -1 for kind in (_LENGTH, _ID))
        return Layout(pieces, length_at, id_at, credential, has_parent=_PARENT in varies)


def _digits(value: bytes) -> int:
    """The whole number in these digits; -1 if there is another character, or very many digits."""
    return int(value) if len(value) <= _MAX_DIGITS and value.isdigit() else -1
