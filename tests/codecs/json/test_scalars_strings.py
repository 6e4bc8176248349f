from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.json.scalars import is_base64, text_or_base64, to_bytes
from app.core.errors import InvalidRequest


@given(st.binary(), st.booleans())
def test_every_bytes_come_back(value: bytes, binary: bool) -> None:
    assert to_bytes(text_or_base64(value, binary)) == value


def test_text_stays_text_unless_bytes_are_meant() -> None:
    assert text_or_base64("é".encode(), binary=False) == "é"
    assert text_or_base64("é", binary=False) == "é"
    assert text_or_base64(b"ab", binary=True) == {"b64": "YWI="}
    assert text_or_base64(b"\xff", binary=False) == {"b64": "/w=="}


@pytest.mark.parametrize("text", ["YWI=", "YWI", "Y W\nI=", "YWI=="])
def test_missing_padding_and_white_space_are_accepted(text: str) -> None:
    assert to_bytes({"b64": text}) == b"ab"


@given(st.binary())
def test_padding_may_be_left_out(value: bytes) -> None:
    assert to_bytes({"b64": b64encode(value).decode().rstrip("=")}) == value


@pytest.mark.parametrize("text", ["*", "Y", "YWI=x", "é", "\ud800"])
def test_other_characters_are_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Unable to base64 decode"):
        to_bytes({"b64": text})


@pytest.mark.parametrize("value", [{"b64": 1}, {"b64": "YQ==", "x": 1}, {"x": "YQ=="}, {}, 1, None, ["a"]])
def test_nothing_else_is_a_string(value: Any) -> None:
    assert not is_base64(value)
    with pytest.raises(InvalidRequest, match="not formatted correctly for base64 data"):
        to_bytes(value)


def test_half_a_surrogate_pair_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        to_bytes("a\ud800")
