"""The count of elements of a MessagePack document: a parser makes an object of each, and holds the GIL in one call.

Source: https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from __future__ import annotations

#: First byte -> the number of bytes that follow it.
_FIXED = {
    0xC0: 0, 0xC1: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip

#: First byte -> the bytes of a length, and the bytes that follow beside that length.
_SIZED = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip

#: First byte of a list or map -> the bytes of its length. Its elements are counted as they come.
_CONTAINERS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def has_many_elements(content: bytes, limit: int) -> bool:
    """Whether a document has more than `limit` values, names and containers, at less than a microsecond each.

    Bytes behind the end of the document count, too.
    """
    place, size = 0, len(content)
    for _ in range(limit):
        if place >= size:
            return False
        first = content[place]
        place += 1
        if 0xA0 <= first < 0xC0:  # a short string
            place += first & 0x1F
        elif first < 0xC0 or first >= 0xE0:  # a small number, list or map
            continue
        elif first in _FIXED:
            place += _FIXED[first]
        elif first in _CONTAINERS:
            place += _CONTAINERS[first]
        else:
            width, more = _SIZED[first]
            place += width + more + int.from_bytes(content[place : place + width], "big")
    return place < size
