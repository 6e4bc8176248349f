"""Header blocks: equal to the library `hpack` for any of them, and what bounds those of a stranger."""

from __future__ import annotations

import random
import time
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.transports.http2 import huffman
from app.transports.http2.hpack import STATIC_TABLE, Decoder, Field, encode_fields, encode_number

names = st.one_of(st.sampled_from([name for name, _ in STATIC_TABLE]), st.binary(min_size=1, max_size=20))
fields = st.lists(st.tuples(names, st.one_of(st.sampled_from([b"", b"POST", b"200"]), st.binary(max_size=60))))

#: What a library encoder does for one block: fields, whether they may enter its table, and the size of that.
blocks = st.lists(st.tuples(fields, st.booleans(), st.sampled_from([0, 64, 200, 4096])), max_size=12)


@pytest.fixture(scope="module")
def library() -> Any:
    return import_module("hpack")


@given(st.binary(max_size=200))
def test_a_string_in_huffmans_code_is_read(content: bytes) -> None:
    constants = import_module("hpack.huffman_constants")
    library = import_module("hpack.huffman").HuffmanEncoder(constants.REQUEST_CODES, constants.REQUEST_CODES_LENGTH)
    assert huffman.decode(library.encode(content)) == content


@given(st.binary(max_size=40))
def test_what_is_no_string_in_huffmans_code_is_none_for_the_library_either(content: bytes) -> None:
    table = import_module("hpack.huffman_table")
    theirs: bytes | None
    try:
        theirs = table.decode_huffman(content)
    except Exception:  # its own error
        theirs = None
    try:
        ours = huffman.decode(content)
    except huffman.CompressionError:
        ours = None
    assert ours == theirs


@given(blocks)
def test_blocks_of_the_library_are_decoded_in_their_order(sent: list[tuple[list[Field], bool, int]]) -> None:
    library = import_module("hpack")
    encoder, decoder = library.Encoder(), Decoder(max_list_bytes=2**20)
    for block, huffman_coded, size in sent:
        encoder.header_table_size = size
        encoded = encoder.encode(block, huffman=huffman_coded)
        for _ in range(2):  # the second time the block may be one that was seen; the library's table follows
            assert list(decoder.decode(encoded).fields) == block
            encoded = encoder.encode(block, huffman=huffman_coded)
        assert list(decoder.decode(encoded).fields) == block


@given(fields)
def test_the_library_decodes_what_is_encoded(sent: list[Field]) -> None:
    library = import_module("hpack")
    decoded = library.Decoder().decode(encode_fields(sent), raw=True)
    assert [tuple(each) for each in decoded] == sent


@given(fields)
def test_what_is_encoded_changes_no_table(sent: list[Field]) -> None:
    decoder = Decoder(max_list_bytes=2**20)
    before = repr(decoder)
    assert list(decoder.decode(encode_fields(sent)).fields) == sent
    assert repr(decoder) == before


@pytest.mark.not_traced  # tracing takes several times as long as the blocks
def test_a_hundred_thousand_random_blocks_are_as_the_library_decodes_them(library: Any) -> None:
    """Bytes that are hardly ever a block, and blocks of an encoder with some of their bytes changed or cut off."""
    chance = random.Random(7)  # noqa: S311 - for no secret
    compared = 0
    while compared < 100_000:
        encoder = library.Encoder()
        decoder, theirs = Decoder(max_list_bytes=2**16), library.Decoder(max_header_list_size=2**16)
        for _ in range(50):
            block = bytearray(_random_block(chance, encoder))
            match chance.randrange(40):
                case 0:
                    del block[chance.randrange(len(block) + 1) :]
                case 1 if block:
                    block[chance.randrange(len(block))] = chance.randrange(256)
            compared += 1
            if not _same(decoder, theirs, bytes(block)):
                break


def _random_block(chance: random.Random, encoder: Any) -> bytes:
    if chance.randrange(100) == 0:
        return chance.randbytes(chance.randrange(30))
    if chance.randrange(10) == 0:
        encoder.header_table_size = chance.choice([0, 50, 100, 1000, 4096])
    some = [chance.choice(STATIC_TABLE) for _ in range(chance.randrange(5))]
    some += [(b"x-%d" % chance.randrange(9), b"v%d" % chance.randrange(9)) for _ in range(chance.randrange(5))]
    encoded: bytes = encoder.encode(some, huffman=chance.random() < 0.5)
    return encoded


def _same(decoder: Decoder, library: Any, block: bytes) -> bool:
    """Whether both decode it; both must fail otherwise, or take the same."""
    try:
        expected = [tuple(each) for each in library.decode(block, raw=True)]
    except Exception:  # one of several of its own
        expected = None
    try:
        got = list(decoder.decode(block).fields)
    except huffman.CompressionError:
        assert expected is None, block
        return False
    if expected is None:  # the library accepts no unfinished change of the table's size; both end the connection
        raise AssertionError(block)
    assert got == expected
    return True


# --- blocks that were seen ---


def indexed(*fields: Field) -> bytes:
    """Literals that enter the table (RFC 7541, section 6.2.1)."""
    return b"".join(b"\x40" + b"".join(encode_number(len(each), 0x7F, 0) + each for each in field) for field in fields)


def test_a_block_that_was_seen_is_the_same_list() -> None:
    decoder = Decoder()
    decoder.decode(indexed((b"a", b"1")))
    first = decoder.decode(b"\xbe\x82")
    assert first.fields == ((b"a", b"1"), (b":method", b"GET"))
    assert decoder.decode(b"\xbe\x82") is first


def test_a_block_that_was_seen_means_something_else_once_the_table_has_changed() -> None:
    decoder = Decoder()
    decoder.decode(indexed((b"a", b"1")))
    assert decoder.decode(b"\xbe").fields == ((b"a", b"1"),)
    decoder.decode(indexed((b"b", b"2")))
    assert decoder.decode(b"\xbe").fields == ((b"b", b"2"),)
    decoder.decode(b"\x20")  # the table is emptied
    with pytest.raises(huffman.CompressionError, match="index 62 of a header block is in no table"):
        decoder.decode(b"\xbe")


def test_a_block_that_changes_the_table_changes_it_each_time() -> None:
    decoder = Decoder()
    for _ in range(3):
        decoder.decode(indexed((b"a", b"1")))
    assert repr(decoder) == "<Decoder 3 entries, 102 of 4096 bytes>"


def test_few_blocks_are_remembered_and_no_long_one() -> None:
    decoder = Decoder()
    for number in range(100):
        decoder.decode(encode_fields([(b"a", b"%d" % number)]))
        decoder.decode(encode_fields([(b"a", b"%d" % number * 2000)]))
    assert len(decoder._blocks) <= 16
    assert max(map(len, decoder._blocks)) < 20


# --- what a stranger sends ---


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x80", "index 0 of a header block is in no table"),
        (b"\xbe", "index 62 of a header block is in no table"),
        (b"\x40", "a header block ends within a field"),
        (b"\x00\x01a\x05b", "a string of a header block is longer than the block"),
        (b"\xff" + b"\x80" * 50 + b"\x01", "a number of a header block is too high"),
        (b"\xff\xff\xff\xff\xff\x7f", "a number of a header block is too high"),
        (b"\x3f\xe2\x1f", "the table becomes 4097 bytes; expected 4096 at most"),
        (b"\x82\x20", "the size of the table changes after the first field of a header block"),
        (b"\x00\x81\xff\x00", "the padding of a string is not the beginning of its end's code, or has 8 bits and more"),
        (b"\x00\x84\xff\xff\xff\xff\x00", "a string has the code of its end in it"),
    ],
)
def test_a_block_that_is_none_is_rejected(block: bytes, text: str) -> None:
    decoder = Decoder()
    for _ in range(2):
        with pytest.raises(huffman.CompressionError) as error:
            decoder.decode(block)
        assert text in str(error.value)


def test_a_long_list_is_cut_and_the_table_follows_to_its_end() -> None:
    decoder = Decoder(max_list_bytes=100)
    long = decoder.decode(indexed((b"a", b"x" * 50), (b"b", b"y" * 50), (b"c", b"z")))
    assert long.too_long
    assert long.fields == ((b"a", b"x" * 50),)
    assert long.size == 51 + 51 + 2 + 3 * 32
    assert decoder.decode(b"\xbe\xbf").fields == ((b"c", b"z"),)


def test_a_small_block_that_stands_for_gigabytes_takes_no_memory() -> None:
    """An HPACK bomb: 64 KiB of references to an entry of 4 KB."""
    decoder = Decoder()
    decoder.decode(indexed((b"a", b"x" * 4000)))
    began = time.thread_time()
    bomb = decoder.decode(b"\xbe" * 2**16)
    assert bomb.size > 2**27
    assert len(bomb.fields) < 5
    assert time.thread_time() - began < 1
