"""Printable text for the log and for pages of metrics: control characters of clients and of folders' names are escaped,
so that they do not reach the terminal of an operator.
"""

from __future__ import annotations

import re

#: Controls (C0 but the tab, DEL, C1), marks and overrides of direction, separators of lines.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

#: Control characters of a page, which consists of lines.
_CONTROLS = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])


def printable(text: str) -> str:
    """The text, with characters that move a terminal's cursor, colour or reorder text escaped, as \\x1b."""
    return text if text.isprintable() else _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def printable_page(page: bytes) -> bytes:
    """The page, with such characters escaped in labels, as \\x1b; the formats escape the backslash once more.

    Most pages have none: the check takes 1 ms for a MB.
    """
    if page.isascii() and len(page.translate(None, _CONTROLS)) == len(page):
        return page
    lines = page.decode().split("\n")
    return "\n".join([_escaped(line) for line in lines]).encode()


def _escaped(line: str) -> str:
    return line if line.isprintable() else "\t".join([_escaped_twice(part) for part in line.split("\t")])


def _escaped_twice(text: str) -> str:
    return "".join([each if each.isprintable() else printable(each).replace("\\", "\\\\") for each in text])
