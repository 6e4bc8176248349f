from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.media_types import choose, media_type

OFFERED = ("application/json", "application/x-npy", "image/png")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"application/json", "application/json"),
        (b" Application/JSON ; charset=utf-8", "application/json"),
        (b"image/png;", "image/png"),
        (b"", ""),
        (b"\xff", "\xff"),
    ],
)
def test_content_types(header: bytes, expected: str) -> None:
    assert media_type(header) == expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (b"*/*", "application/json"),
        (b"*", "application/json"),
        (b"text/html, image/gif, *; q=.2, */*; q=.2", "application/json"),
        (b"application/x-npy", "application/x-npy"),
        (b"APPLICATION/X-NPY", "application/x-npy"),
        (b"application/x-npy;version=1;q=0.5", "application/x-npy"),
        (b"application/x-npy, */*;q=0.1", "application/x-npy"),
        (b"application/json;q=0.5, application/x-npy;q=0.9", "application/x-npy"),
        (b"image/*", "image/png"),
        (b"image/*, application/*;q=0.9", "image/png"),
        (b"application/json;q=0, */*", "application/x-npy"),
        (b"application/*;q=0.5, application/json;q=0.4", "application/x-npy"),
        (b"text/html", None),
        (b"*/*;q=0", None),
        (b"application/json;q=much", None),
        (b"application/json;q=nan", None),
        (b",;,", None),
    ],
)
def test_the_type_of_highest_quality_is_chosen(accept: bytes, expected: str | None) -> None:
    assert choose(accept, OFFERED) == expected


@given(st.binary())
def test_any_header_gives_an_answer(accept: bytes) -> None:
    assert choose(accept, OFFERED) in (*OFFERED, None)
