"""HPACK: header compression (RFC 7541). Section numbers below are that RFC's.

A decoder remembers whole header blocks: a client that repeats a request sends the same bytes again, all of them
references to its table, and then decoding is one look-up. A block may be looked up only while the table is unchanged
since it was decoded, and only if decoding it does not change the table. So a block that changes the table is never
kept, and a change of the table forgets all blocks.

A block costs time and memory linear in its bytes: a reference adds a pair to a list and copies nothing. A list longer
than its limit is read to its end, since the table must follow, but not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from app.transports.http2.huffman import CompressionError, decode

Field = tuple[bytes, bytes]

#: Appendix A; the first entry has index 1.
STATIC_TABLE: tuple[Field, ...] = (
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""),
    (b"cache-control", b""), (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""),
    (b"content-length", b""), (b"content-location", b""), (b"content-range", b""), (b"content-type", b""),
    (b"cookie", b""), (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""),
    (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""),
    (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""), (b"location", b""),
    (b"max-forwards", b""), (b"proxy-authenticate", b""), (b"proxy-authorization", b""), (b"range", b""),
    (b"referer", b""), (b"refresh", b""), (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""),
    (b"strict-transport-security", b""), (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""),
    (b"via", b""), (b"www-authenticate", b""),
)  # fmt: skip

_STATIC = len(STATIC_TABLE)

#: What an entry of the table, and of a list, counts beyond its name and value (section 4.1; RFC 9113, 6.5.2).
_ENTRY_BYTES = 32

#: Memory that a field of a list takes beyond that. Measured by tests/transports/grpc/incoming/test_memory.py.
_FIELD_BYTES = 96

#: The table's size until a peer changes it (section 4.2; RFC 9113, 6.5.2).
DEFAULT_TABLE_BYTES = 4096

#: No number of a block is higher: no length, no index, no table size (section 5.1 lets a decoder set a limit).
_MOST = 2**28

#: A decoder remembers this many blocks, of this many bytes all together, lists included. Chosen: a client has few forms
#: of requests, of some 1.5 KiB each.
_BLOCKS, _REMEMBERED_BYTES = 16, 2**14


#: A head that takes more bytes counts with the messages of its call, or the body of its request. Chosen: few do.
_LONG_BYTES = 2**11


class HeaderList:
    """The fields of one decoded block, in order. Equal blocks share one list, so it is interpreted once.

    Attributes:
        size: of all fields, 32 bytes for each included, also of those that were not kept.
        held_bytes: what it takes; valid unless it is too long.
        long_bytes: the same, if that is much; else 0: an open request counts for so much anyway.
        too_long: the list is longer than its limit, and `fields` has only its beginning.
        request, meaning: its interpretation, kept by the connection and by the application.
    """

    __slots__ = ("fields", "meaning", "request", "size", "too_long")

    def __init__(self, fields: tuple[Field, ...], size: int, too_long: bool = False) -> None:
        self.fields = fields
        self.size = size
        self.too_long = too_long
        self.request: Any = None
        self.meaning: Any = None

    @property
    def held_bytes(self) -> int:
        return self.size + _FIELD_BYTES * len(self.fields)

    @property
    def long_bytes(self) -> int:
        held_bytes = self.held_bytes
        return held_bytes if held_bytes > _LONG_BYTES else 0

    def __repr__(self) -> str:
        return f"<HeaderList {len(self.fields)} fields, {self.size} bytes{', too long' if self.too_long else ''}>"


class Decoder:
    """Decodes the blocks of one direction of a connection, in their order.

    Args:
        max_table_bytes: the most that the peer may set its table to, our SETTINGS_HEADER_TABLE_SIZE.
        max_list_bytes: a longer list is cut.
    """

    __slots__ = ("_blocks", "_limit", "_max_list_bytes", "_max_table_bytes", "_remembered", "_size", "_table")

    def __init__(self, max_table_bytes: int = DEFAULT_TABLE_BYTES, max_list_bytes: int = 2**14) -> None:
        self._max_table_bytes = self._limit = max_table_bytes
        self._max_list_bytes = max_list_bytes
        self._table: deque[Field] = deque()  # the newest first, as indexes count
        self._size = 0
        self._blocks: dict[bytes, HeaderList] = {}
        self._remembered = 0

    def decode(self, block: bytes) -> HeaderList:
        """The fields of a header block. Raises CompressionError."""
        known = self._blocks.get(block)
        if known is not None:
            return known
        try:
            return self._decode(block)
        except IndexError:
            raise CompressionError("a header block ends within a field") from None

    def _decode(self, block: bytes) -> HeaderList:
        fields: list[Field] = []
        at = first = self._new_sizes(block)
        end, size, most = len(block), 0, self._max_list_bytes
        changed = first > 0
        while at < end:
            byte = block[at]
            if byte & 0x80 and byte != 0xFF:  # 6.1: an indexed field, whose index is in this byte
                field, at = self._entry(byte & 0x7F), at + 1
            elif byte & 0xC0:
                field, at = self._changing(block, at)
                changed = True
            else:
                field, at = self._literal(block, at, 0x0F)  # 6.2.2, 6.2.3: a literal that enters no table
            size += len(field[0]) + len(field[1]) + _ENTRY_BYTES
            if size <= most:
                fields.append(field)
        decoded = HeaderList(tuple(fields), size, size > most)
        self._remember(block, decoded, changed)
        return decoded

    def _remember(self, block: bytes, decoded: HeaderList, changed: bool) -> None:
        if changed:
            self._blocks.clear()
            self._remembered = 0
        elif (size := len(block) + decoded.held_bytes) <= _REMEMBERED_BYTES // 4:
            if len(self._blocks) >= _BLOCKS or self._remembered + size > _REMEMBERED_BYTES:
                self._blocks.clear()
                self._remembered = 0
            self._blocks[block] = decoded
            self._remembered += size

    def _new_sizes(self, block: bytes) -> int:
        """Follows the changes of the table's size at the beginning of a block (6.3), and says where they end."""
        at = 0
        while at < len(block) and block[at] & 0xE0 == 0x20:
            limit, at = _number(block, at, 0x1F)
            self._resize(limit)
        return at

    def _changing(self, block: bytes, at: int) -> tuple[Field, int]:
        """A field whose index is longer than a byte, or 6.2.1: a literal that enters the table."""
        if block[at] & 0x80:
            index, at = _number(block, at, 0x7F)
            return self._entry(index), at
        field, at = self._literal(block, at, 0x3F)
        self._add(field)
        return field, at

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[Field, int]:
        if block[at] & 0xE0 == 0x20:
            raise CompressionError("the size of the table changes after the first field of a header block")
        index = block[at] & mask
        if index == mask:
            index, at = _number(block, at, mask)
        else:
            at += 1
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at

    def _entry(self, index: int) -> Field:
        """The field of this index in the static or the dynamic table (section 2.3.3)."""
        if 0 < index <= _STATIC:
            return STATIC_TABLE[index - 1]
        if 0 < index <= _STATIC + len(self._table):
            return self._table[index - _STATIC - 1]
        raise CompressionError(f"index {index} of a header block is in no table")

    def _add(self, field: Field) -> None:
        """Section 4.4. An entry that is larger than the table empties it."""
        self._size += len(field[0]) + len(field[1]) + _ENTRY_BYTES
        self._table.appendleft(field)
        self._evict()

    def _resize(self, limit: int) -> None:
        """Changes the bytes that the dynamic table may have (section 4.2)."""
        if limit > self._max_table_bytes:
            raise CompressionError(f"the table becomes {limit} bytes; expected {self._max_table_bytes} at most")
        self._limit = limit
        self._evict()

    def _evict(self) -> None:
        table = self._table
        while self._size > self._limit:
            name, value = table.pop()
            self._size -= len(name) + len(value) + _ENTRY_BYTES

    def __repr__(self) -> str:
        return f"<Decoder {len(self._table)} entries, {self._size} of {self._limit} bytes>"


def _number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Section 5.1: the number whose first byte has it below `mask`, and the place after it. Raises IndexError."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if number > _MOST or shift > 28:  # zeros may follow for ever
            raise CompressionError("a number of a header block is too high")
        if byte < 0x80:
            return number, at
        shift += 7


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """The string at this place, and the place after it (section 5.2)."""
    first = block[at]
    if first & 0x7F == 0x7F:
        length, at = _number(block, at, 0x7F)
    else:
        length, at = first & 0x7F, at + 1
    end = at + length
    if end > len(block):
        raise CompressionError("a string of a header block is longer than the block")
    content = block[at:end]
    return (decode(content) if first & 0x80 else content), end


# --- the other way ---

_INDEXES: dict[Field, int] = {field: index for index, field in reversed(list(enumerate(STATIC_TABLE, 1)))}
_NAMES: dict[bytes, int] = {field[0]: index for index, field in reversed(list(enumerate(STATIC_TABLE, 1)))}


def encode_fields(fields: Iterable[Field]) -> bytes:
    """A block that uses only the static table, so that equal fields are equal bytes on every connection.

    Fields of the static table are indexed; others are literals that enter no table.
    """
    return b"".join([
        literal(name, value) if (index := _INDEXES.get((name, value))) is None else encode_number(index, 0x7F, 0x80)
        for name, value in fields
    ])  # fmt: skip


def literal(name: bytes, value: bytes) -> bytes:
    """A field that enters no table. Not in Huffman's code: that takes longer than it saves on an answer."""
    size = len(value)
    if size < 0x7F:
        return b"%b%c%b" % (literal_name(name), size, value)
    return literal_name(name) + encode_number(size, 0x7F, 0) + value


@lru_cache(maxsize=256)
def literal_name(name: bytes) -> bytes:
    """The beginning of a literal that enters no table (section 6.2.2)."""
    index = _NAMES.get(name)
    if index is not None:
        return encode_number(index, 0x0F, 0)
    return b"\0" + encode_number(len(name), 0x7F, 0) + name


def encode_number(number: int, mask: int, first: int) -> bytes:
    """Section 5.1. `first`: the bits of the first byte above the mask."""
    if number < mask:
        return bytes([first | number])
    content = bytearray([first | mask])
    number -= mask
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)
    return bytes(content)
