"""Lines of the log and pages of metrics without control characters, which a client or a folder's name may bring to the
terminal of an operator.
"""

from __future__ import annotations

import re

#: Controls (C0 but the tab, DEL, C1), marks and overrides of direction, separators of lines.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

#: Of a page, which consists of lines.
_CONTROLS = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])


def printable(text: str) -> str:
    """`text` without what moves a terminal's cursor, colours or reorders it: such characters are escaped, as \\x1b."""
    return text if text.isprintable() else _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def printable_page(page: bytes) -> bytes:
    """The page, whose labels have such characters escaped, as \\x1b; the formats escape the backslash once more.

    A page has none as a rule, which takes 1 ms for a MB to find.
    """
    if page.isascii() and len(page.translate(None, _CONTROLS)) == len(page):
        return page
    lines = page.decode().split("\n")
    return "\n".join([_escaped(line) for line in lines]).encode()


def _escaped(line: str) -> str:
    return line if line.isprintable() else "\t".join([_twice(part) for part in line.split("\t")])


def _twice(text: str) -> str:
    return "".join([each if each.isprintable() else printable(each).replace("\\", "\\\\") for each in text])
