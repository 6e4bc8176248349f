from __future__ import annotations

import asyncio
import gzip
import zlib
from hashlib import shake_128
from itertools import pairwise
from math import inf
from typing import Any

import pytest

import app.core.errors
from app.codecs.errors import BodyTooLarge
from app.core.errors import (
    InferenceFailed,
    InvalidRequest,
    ModelNotFound,
    NoMemoryLeft,
    Overloaded,
    ServingError,
    ShuttingDown,
)
from app.transports.http.compression import UnsupportedEncoding
from app.transports.http.replies import CODES, ClientGone, HttpOptions, code_of, error_reply, internal_error, read_body
from app.transports.memory.body_room import BINARY, BodyRoom
from app.transports.memory.client_memory import ClientMemory
from tests.support.protocol_fakes import scope, scripted


def subclasses(kind: type[ServingError]) -> set[type[ServingError]]:
    return {kind}.union(*(subclasses(each) for each in kind.__subclasses__()))


def test_every_error_has_a_code_of_its_own_or_of_its_base() -> None:
    listed = {
        kind for kind in vars(app.core.errors).values() if isinstance(kind, type) and issubclass(kind, ServingError)
    }
    assert listed - CODES.keys() == {ServingError}
    for kind in subclasses(ServingError) - {ServingError}:
        assert any(base in CODES for base in kind.__mro__), kind


def test_the_nearest_class_decides() -> None:
    class Special(ModelNotFound):
        pass

    assert code_of(Special) == 404
    assert code_of(InvalidRequest) == 400
    assert code_of(BodyTooLarge) == 413
    assert code_of(ServingError) == 500


def test_503_says_when_to_come_back() -> None:
    overloaded = Overloaded("full")
    overloaded.retry_after_s = 2.5
    assert error_reply(overloaded).headers == ((b"retry-after", b"3"),)
    assert error_reply(app.core.errors.OutOfMemory("no room")).headers == ((b"retry-after", b"1"),)
    assert error_reply(InferenceFailed("broken")).headers == ()


@pytest.mark.parametrize("error", [ShuttingDown("draining"), BodyTooLarge("large")])
def test_a_connection_of_no_more_use_is_closed(error: ServingError) -> None:
    assert (b"connection", b"close") in error_reply(error).headers


def test_an_error_text_of_half_a_surrogate_pair_is_still_json() -> None:
    assert error_reply(InvalidRequest("\ud800")).body == b'{"error":"\\\\ud800"}'


def test_a_bug_is_not_shown() -> None:
    reply = internal_error()
    assert (reply.status, reply.body) == (500, b'{"error":"Internal error"}')


LIMIT = 1000


def read(*chunks: bytes, **headers: str) -> bytes:
    last = len(chunks) - 1
    messages = [{"type": "http.request", "body": c, "more_body": i < last} for i, c in enumerate(chunks)]
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(read_body(scope("POST", "/", names)["headers"], scripted(*messages), LIMIT))


def raw_deflate(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(body) + stream.flush()


def test_chunks_are_joined() -> None:
    assert read(b"ab", b"", b"c") == b"abc"
    assert read(b"x" * LIMIT) == b"x" * LIMIT


def test_a_message_may_lack_its_optional_keys() -> None:
    assert asyncio.run(read_body(scope("POST", "/")["headers"], scripted({"type": "http.request"}), LIMIT)) == b""


def test_too_much_is_rejected_while_it_arrives() -> None:
    with pytest.raises(BodyTooLarge, match="max_body_bytes, 1000 bytes"):
        read(b"x" * 600, b"x" * 600, b"never read")


def test_a_body_that_is_announced_too_large_is_rejected_before_it_is_read() -> None:
    async def receive() -> Any:
        raise AssertionError("the body was read")

    with pytest.raises(BodyTooLarge):
        asyncio.run(read_body(scope("POST", "/", {"content-length": "1001"})["headers"], receive, LIMIT))


def test_the_client_hangs_up_while_sending() -> None:
    with pytest.raises(ClientGone):
        asyncio.run(read_body(scope("POST", "/")["headers"], scripted({"type": "http.disconnect"}), LIMIT))


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("GZIP ", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
        ("", bytes),
    ],
)
def test_compressed_bodies_are_inflated(encoding: str, compress: Any) -> None:
    assert read(compress(b"hello " * 100), content_encoding=encoding) == b"hello " * 100


def test_memory_is_asked_for_before_more_is_inflated_and_may_be_refused() -> None:
    """In steps of 2 MiB, never for more than the limit."""
    asked: list[int] = []

    def reserve(size: int) -> None:
        asked.append(size)
        if size == 5 * 2**20:
            raise NoMemoryLeft("no more")

    headers = [(b"content-encoding", b"gzip")]
    content = shake_128().digest(2**17).ljust(5 * 2**20, b"\0")  # not so short that it is a bomb
    body = scripted({"type": "http.request", "body": gzip.compress(content)})
    with pytest.raises(NoMemoryLeft):
        asyncio.run(read_body(headers, body, 5 * 2**20, reserve))
    steps = [after - before for before, after in pairwise([0, *asked])]
    assert all(0 < step < 2.5 * 2**20 for step in steps)
    assert asked[-1] == 5 * 2**20


def test_several_gzip_members_are_one_body() -> None:
    assert read(gzip.compress(b"ab") + gzip.compress(b"c"), content_encoding="gzip") == b"abc"
    assert read(b"", content_encoding="gzip") == b""


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_is_rejected(encoding: str) -> None:
    bomb = gzip.compress(bytes(LIMIT + 1)) if encoding == "gzip" else zlib.compress(bytes(LIMIT + 1))
    with pytest.raises(BodyTooLarge):
        read(bomb, content_encoding=encoding)


def test_the_limit_holds_for_all_members_together() -> None:
    with pytest.raises(BodyTooLarge):
        read(gzip.compress(bytes(600)) + gzip.compress(bytes(600)), content_encoding="gzip")
    assert len(read(gzip.compress(bytes(LIMIT)), content_encoding="gzip")) == LIMIT


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize(
    "body", [b"no compression", gzip.compress(b"hello", mtime=0)[:-4], zlib.compress(b"hello")[:-3]]
)
def test_garbage_is_rejected(encoding: str, body: bytes) -> None:
    with pytest.raises(InvalidRequest, match=f"not valid {encoding}"):
        read(body, content_encoding=encoding)


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(UnsupportedEncoding, match=r"'br' is not supported; send gzip") as caught:
        read(b"", content_encoding="br")
    assert code_of(type(caught.value)) == 415


@pytest.mark.parametrize(("left_mb", "most"), [(inf, 10**6), (41.0, 98_304), (1000.0, 10**6)])
def test_what_is_unpacked_and_lines_are_bounded_by_a_small_container(left_mb: float, most: int) -> None:
    memory = ClientMemory(room=BodyRoom(lambda: left_mb * 2**20))
    memory.room.measure()
    assert HttpOptions(10**6, 1000.0, memory=memory).most_bytes(BINARY) == most
    assert HttpOptions(10**6, 1000.0).most_bytes(BINARY) == 10**6
