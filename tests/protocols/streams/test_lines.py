from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.errors import BodyTooLarge
from app.protocols.streams.lines import Block, LineCutter
from tests.transports.http.test_compression import in_pieces

MAX_LINES, MAX_BYTES = 3, 8

cuts = st.lists(st.integers(0, 300), max_size=6)


def numbered(block: Block) -> list[tuple[int, bytes]]:
    return [*enumerate(block.lines, block.first)]


@given(st.lists(st.sampled_from([b"", b" \r", b"1", b"[1, 2]", b"12345678"]), max_size=20), st.booleans(), cuts)
def test_every_line_comes_once_with_its_number_however_the_body_is_cut(
    lines: list[bytes], ends: bool, cuts: list[int]
) -> None:
    body = b"\n".join(lines) + b"\n" * ends
    cutter = LineCutter(MAX_LINES, MAX_BYTES)
    blocks = [block for piece in in_pieces(body, cuts) for block in cutter.feed(piece)] + [*cutter.finish()]
    found = [line for block in blocks for line in numbered(block)]
    assert found == [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    assert all(0 < len(block.lines) <= MAX_LINES for block in blocks)


def test_what_is_there_is_not_held_back() -> None:
    cutter = LineCutter(MAX_LINES, MAX_BYTES)
    assert [*cutter.feed(b"1\n2\n3\n4\n5")] == [Block(1, [b"1", b"2", b"3"]), Block(4, [b"4"])]
    assert [*cutter.feed(b"0\n\n6")] == [Block(5, [b"50"])]
    assert [*cutter.finish()] == [Block(7, [b"6"])]


@given(st.integers(0, 5), st.integers(0, 20), st.booleans(), cuts)
def test_a_line_that_is_too_long_is_rejected_behind_those_before_it(
    before: int, more: int, ends: bool, cuts: list[int]
) -> None:
    body = b"1\n" * before + b"9" * (MAX_BYTES + 1 + more) + b"\n2\n" * ends
    cutter = LineCutter(MAX_LINES, MAX_BYTES)
    found: list[bytes] = []

    def read() -> None:
        for piece in in_pieces(body, cuts):
            for block in cutter.feed(piece):
                found.extend(block.lines)

    with pytest.raises(BodyTooLarge, match=f"Line {before + 1} is longer than 8 bytes: max_body_bytes"):
        read()
    assert found == [b"1"] * before


def test_halves() -> None:
    block = Block(7, [b"1", b"22", b"3"])
    assert block.size == 4
    assert block.halves() == (Block(7, [b"1"]), Block(8, [b"22", b"3"]))
