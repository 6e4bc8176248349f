"""A call's messages are cut out of its content, within a limit, and inflated."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest

from app.transports.grpc.incoming.messages import MessageReader, Rejected, inflate

MIB = 2**20


def framed(*messages: bytes, flag: int = 0) -> bytes:
    return b"".join(bytes([flag]) + len(each).to_bytes(4, "big") + each for each in messages)


def test_messages_are_cut_at_any_point() -> None:
    messages = [b"", b"a", b"x" * 300, b"", b"b" * 7]
    content = framed(*messages)
    for at in range(len(content)):
        reader = MessageReader(1000)
        got = [*reader.feed(content[:at]), *reader.feed(content[at:])]
        assert [each.content for each in got] == messages
        assert reader.between
    reader = MessageReader(1000)
    assert [m.content for at in range(len(content)) for m in reader.feed(content[at : at + 1])] == messages


@pytest.mark.parametrize("sizes", [[1], [2000, 1]], ids=["short", "mixed"])
def test_a_message_in_short_pieces_takes_little_more_than_it_counts(sizes: list[int]) -> None:
    reader = MessageReader(MIB)
    reader.feed(bytes([0]) + MIB.to_bytes(4, "big"))
    pieces = [bytes(size) for size in sizes]
    tracemalloc.start()
    try:
        for _ in range(100_000 // sum(sizes)):  # what other threads take meanwhile is little beside it
            for each in pieces:
                reader.feed(bytes(bytearray(each)))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.3 * reader.size
    (message,) = reader.feed(bytes(MIB - reader.size))
    assert message.content == bytes(MIB)


@pytest.mark.parametrize("content", [b"\2\0\0\0\0", b"\0\0\0\3\xe9"])
def test_what_is_no_message_or_too_large_is_rejected_by_its_prefix(content: bytes) -> None:
    with pytest.raises(Rejected):
        MessageReader(1000).feed(content)


def test_a_small_message_does_not_become_a_large_one() -> None:
    bomb = gzip.compress(bytes(10**7))
    with pytest.raises(Rejected, match="Received message larger than max"):
        inflate(bomb, b"gzip", 10**6)
    assert inflate(bomb, b"gzip", 10**7) == bytes(10**7)
    assert inflate(zlib.compress(b"a"), b"deflate", 1) == b"a"
    for content, encoding in ((b"a", b"gzip"), (gzip.compress(b"abc")[:-3], b"gzip"), (b"a", b"identity")):
        with pytest.raises(Rejected):
            inflate(content, encoding, 100)
