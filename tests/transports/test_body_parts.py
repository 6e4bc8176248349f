"""Parts of a body, as they are kept until it is whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.transports.body_parts import keep_part


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(1000, 1100))))
def test_parts_are_the_body_and_short_ones_in_a_row_are_one_object(sizes: list[int]) -> None:
    parts: list[bytes | bytearray] = []
    sent = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    for each in sent:
        keep_part(parts, each)
    assert b"".join(parts) == b"".join(sent)
    long = sum(size >= 1024 for size in sizes)
    assert len(parts) <= 2 * long + 1
    assert all(parts)
