"""HPACK's Huffman code (RFC 7541, section 5.2 and appendix B).

The code is canonical: among codes of equal length the symbols ascend, and shorter codes come first. So the lengths are
the whole table. A decoder takes a byte in one step. A state is an inner node of the tree: the part of a code that was
read. Each state has a row of 256 steps. A step is made when it is first needed, in 2 us, 65,536 times at most.
"""

from __future__ import annotations

#: The number of bits of the code of each byte, and of the end of the string (256).
_LENGTHS = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
)  # fmt: skip

_END = 256

#: Padding is shorter than this, and all ones (section 5.2).
_MOST_PADDING = 8


class CompressionError(Exception):
    """A header block that cannot be decoded: the connection has to end, since its table is not known any more."""


class _Row(list["_Step | None"]):
    """The steps of one state, by the byte that is read.

    may_end: a string may end here: only ones were read since the last symbol, fewer than 8.
    """

    __slots__ = ("may_end", "node")

    def __init__(self, node: int) -> None:
        super().__init__([None] * 256)
        self.node = node
        self.may_end = False


#: Where a byte leads: the next state, and the bytes that it completes.
_Step = tuple[_Row, bytes]


def _tree() -> list[list[int]]:
    """Inner nodes; each has two children: above 0 an inner node, else minus the symbol minus 1. The root is 0."""
    nodes = [[0, 0]]
    code = bits = 0
    for symbol in sorted(range(len(_LENGTHS)), key=_LENGTHS.__getitem__):
        code <<= _LENGTHS[symbol] - bits
        bits = _LENGTHS[symbol]
        node = 0
        for place in range(bits - 1, 0, -1):
            branch = code >> place & 1
            if not nodes[node][branch]:
                nodes.append([0, 0])
                nodes[node][branch] = len(nodes) - 1
            node = nodes[node][branch]
        nodes[node][code & 1] = -symbol - 1
        code += 1
    return nodes


_NODES = _tree()


def _rows() -> list[_Row]:
    rows = [_Row(node) for node in range(len(_NODES))]
    node = 0
    for _ in range(_MOST_PADDING):
        rows[node].may_end = True
        node = _NODES[node][1]
    return rows


_ROWS = _rows()


def _step(row: _Row, byte: int) -> _Step:
    """The step of a byte behind `row`, which is kept in it. Raises CompressionError."""
    node, decoded = row.node, b""
    for place in range(7, -1, -1):
        node = _NODES[node][byte >> place & 1]
        if node < 0:
            symbol = -node - 1
            if symbol == _END:
                raise CompressionError("a string has the code of its end in it")
            decoded += bytes([symbol])
            node = 0
    row[byte] = step = (_ROWS[node], decoded)
    return step


def decode(content: bytes) -> bytes:
    """The string; it has at most 8 bytes for 5 of the code. Raises CompressionError."""
    row, parts = _ROWS[0], []
    for byte in content:
        row, decoded = row[byte] or _step(row, byte)
        parts.append(decoded)
    if not row.may_end:
        raise CompressionError("the padding of a string is not the beginning of its end's code, or has 8 bits and more")
    return b"".join(parts)
