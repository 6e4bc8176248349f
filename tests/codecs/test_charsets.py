"""Text in any charset that is read is the same text in UTF-8; the oracle is Python's own codecs on the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.charsets import _SLICE_BYTES, in_utf8, named_charset, names_another, text_charset
from app.codecs.errors import UnsupportedMediaType
from app.core.errors import InvalidRequest

UTF_16 = ("utf-16-le", "utf-16-be")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_text_is_the_same_in_utf_8(text: str) -> None:
    text = "{" + text  # as JSON begins
    for charset in UTF_16:
        body = text.encode(charset)
        mark = "\ufeff".encode(charset)
        for sent, named in ((body, charset), (mark + body, charset), (body, "utf-16"), (mark + body, "utf-16")):
            assert b"".join(in_utf8(sent, named)) == text.encode()
    one_byte = text.encode("latin-1", "replace")
    assert b"".join(in_utf8(one_byte, "latin-1")) == one_byte.decode("latin-1").encode()


@pytest.mark.parametrize("charset", UTF_16)
def test_a_character_of_four_bytes_may_lie_across_two_slices_and_only_the_first_may_be_a_mark(charset: str) -> None:
    text = "[" + "a" * (_SLICE_BYTES // 2 - 2) + "\N{GRINNING FACE}\ufeff]"
    pieces = list(in_utf8(text.encode(charset), charset))
    assert len(pieces) == 2
    assert b"".join(pieces) == text.encode()


@pytest.mark.parametrize("body", [b"{\x00}", b"{\x00\x00\xd8", b"{\x00\x00\xd8}\x00", b"{\x00" * _SLICE_BYTES + b"}"])
def test_what_is_not_in_the_charset_is_told(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"The body is not utf-16, which Content-Type names: .+ near byte \d+$"):
        list(in_utf8(body, "utf-16"))


def test_the_order_of_utf_16_without_mark_is_that_of_its_first_character_else_big_endian() -> None:
    assert b"".join(in_utf8(b"[\x00]\x00", "utf-16")) == b"".join(in_utf8(b"\x00[\x00]", "utf-16")) == b"[]"
    assert b"".join(in_utf8(b"", "utf-16")) == b""


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        (None, ""),
        (b"application/json", ""),
        (b"application/json; charset=UTF-8", ""),
        (b"application/json; charset=", ""),
        (b"application/json;charset=us-ascii", ""),
        (b"application/json; charset=utf-16", "utf-16"),
        (b'text/plain ; a=b ; Charset="UTF-16LE" ; charset=utf-8', "utf-16-le"),
        (b"application/json;charset=Utf-16BE;", "utf-16-be"),
        (b"application/json; charset=ISO-8859-1", "latin-1"),
        (b"application/json; charset = latin1", "latin-1"),
        (b'application/json; note="; charset=utf-16"', ""),
        (b'application/json; note="\\"; charset=utf-16"; charset=latin1', "latin-1"),
        (b"charset=utf-16", ""),
    ],
)
def test_the_charset_that_is_named(content_type: bytes | None, charset: str) -> None:
    assert (named_charset(content_type), text_charset(content_type)) == (charset, charset)
    assert names_another(content_type) is bool(charset)


@pytest.mark.parametrize("kind", [b"application/x-npy", b"image/png", b"application/octet-stream"])
def test_tensors_have_no_charset(kind: bytes) -> None:
    assert text_charset(kind + b"; charset=utf-16") == text_charset(kind + b"; charset=binary") == ""


def test_another_charset_is_not_read_and_those_that_are_are_listed() -> None:
    with pytest.raises(
        UnsupportedMediaType,
        match=r"the charset 'koi8-r'; expected one of utf-8, utf-16, utf-16le, utf-16be, iso-8859-1$",
    ):
        text_charset(b"application/json; charset=KOI8-R")
    assert names_another(b"application/json; charset=KOI8-R")


def test_a_hostile_content_type_takes_linear_time() -> None:
    for part in (b';a="', b';a="\\', b";" + b" " * 50, b";=", b'";a=\\"'):
        assert named_charset(part * 20_000) == ""
