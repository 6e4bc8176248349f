"""Percent-encoding in paths; the oracle is RFC 3986, sections 2.3 and 6.2.2.2."""

import string
from urllib.parse import unquote

from app.transports.paths import without_needless_encoding


def test_of_all_encoded_bytes_the_unreserved_ones_alone_are_decoded() -> None:
    unreserved = set(string.ascii_letters + string.digits + "-._~")
    for byte in range(256):
        for encoded in (f"%{byte:02X}", f"%{byte:02x}"):
            decoded = chr(byte) if chr(byte) in unreserved else encoded
            assert without_needless_encoding(f"/a{encoded}b") == f"/a{decoded}b"


def test_nothing_is_decoded_twice_and_its_meaning_stays() -> None:
    for path in ("/%2541", "/%25%34%31", "/%4", "/%", "/%zz", "/%4%31", "/a"):
        assert unquote(without_needless_encoding(path)) == unquote(path)
    assert without_needless_encoding("/%25%34%31") == "/%2541"
