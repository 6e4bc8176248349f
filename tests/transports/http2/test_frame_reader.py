"""Frames out of bytes that are cut anywhere (RFC 9113, sections 3.4 and 4)."""

from __future__ import annotations

import pytest

from app.transports.http2 import frames
from app.transports.http2.events import ConnectionFailed
from app.transports.http2.frame_reader import MAX_FRAME_BYTES, Frame, FrameReader
from app.transports.http2.frames import DATA, PING, PREFACE, ErrorCode

SENT: list[Frame] = [(PING, 0, 0, b"12345678"), (DATA, 1, 3, b"x" * MAX_FRAME_BYTES), (DATA, 0, 5, b"")]
CONTENT = PREFACE + b"".join(frames.frame(kind, flags, number, payload) for kind, flags, number, payload in SENT)


@pytest.mark.parametrize("cut", [*range(60), len(CONTENT) - 12, len(CONTENT) - 1])
def test_frames_are_the_same_wherever_bytes_are_cut(cut: int) -> None:
    reader = FrameReader()
    assert [*reader.read(CONTENT[:cut]), *reader.read(CONTENT[cut:])] == SENT
    assert not reader.unread


def test_the_beginning_of_a_frame_is_kept() -> None:
    reader = FrameReader()
    assert list(reader.read(CONTENT[:-1])) == SENT[:2]
    assert reader.unread == frames.frame(DATA, 0, 5)[:-1]


def test_a_frame_that_is_too_long_ends_the_connection_after_those_before_it() -> None:
    came: list[Frame] = []
    with pytest.raises(ConnectionFailed, match="a frame of 16385 bytes; expected 16,384 at most") as failed:
        came.extend(FrameReader().read(CONTENT + frames.frame(DATA, 0, 7, b"x" * (MAX_FRAME_BYTES + 1))))
    assert came == SENT
    assert failed.value.code == ErrorCode.FRAME_SIZE_ERROR


def test_what_is_no_http2_ends_the_connection_with_its_first_wrong_byte() -> None:
    reader = FrameReader()
    assert not list(reader.read(b"PRI * HTTP"))
    with pytest.raises(ConnectionFailed, match="expected the preface of HTTP/2"):
        list(reader.read(b"!"))


def test_no_more_frames_are_read_than_asked_for_and_the_rest_is_kept() -> None:
    reader = FrameReader()
    assert [*reader.read(CONTENT, 1)] == SENT[:1]
    assert reader.more
    reader.keep(frames.frame(*SENT[0][:3], SENT[0][3])[:-1])
    assert [*reader.read(b"", 2)] == SENT[1:]
    assert [*reader.read(b"")] == []
    assert not reader.more
    assert reader.unread_bytes == frames.HEAD_BYTES + len(SENT[0][3]) - 1


def test_nothing_is_kept_after_a_failure() -> None:
    reader = FrameReader()
    for _ in reader.read(CONTENT):
        reader.drop()
    assert not reader.unread
