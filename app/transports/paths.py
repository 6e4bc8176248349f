"""The form in which paths are compared with routes.

Letters, digits and "-._~" mean the same encoded and as they are (RFC 3986, section 6.2.2.2), so a path is compared
without needless encoding, wherever its route, its permission and its port are looked up. All other
encoded characters stay: "%2F" is no end of a segment, and "%25" begins no other character. A path stays as it is if a
"%" in it begins no encoded byte: decoding could make it begin one.
"""

from __future__ import annotations

import re
import string

_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
_ALONE = re.compile("%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")


def without_needless_encoding(path: str) -> str:
    """`path`: as sent, percent-encoded, without the query."""
    if "%" not in path or _ALONE.search(path):
        return path
    return _ENCODED.sub(_decoded, path)


def _decoded(found: re.Match[str]) -> str:
    letter = chr(int(found[1], 16))
    return letter if letter in _UNRESERVED else found[0]
