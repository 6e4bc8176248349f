"""Lines that an output has no room for: kept in order, bounded, dropped, counted, told, flushed; and forks."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from app.log_output.line_writer import LineWriter

NOBODY = -1


class FakeOutput:
    """Has room for `room` bytes; as a pipe it takes a short piece whole or not at all. `NOBODY` reads: an error."""

    def __init__(self, room: int, *, waits: bool = False) -> None:
        self.room = room
        self.waits = waits
        self.written = b""

    def write(self, data: bytes) -> int:
        if self.room == NOBODY:
            raise BrokenPipeError
        taken = len(data) if len(data) <= self.room else self.room if len(data) > 4096 else 0
        if not taken:
            raise BlockingIOError
        self.room -= taken
        self.written += data[:taken]
        return taken

    def wait(self) -> None:
        self.room = 1_000_000


class FakeThread:
    """Starts nothing; `refuses` as an interpreter that ends."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.started: list[Callable[[], None]] = []
        self.refuses = refuses

    def __call__(self, run: Callable[[], None]) -> None:
        if self.refuses:
            raise RuntimeError("can't start new thread")
        self.started.append(run)


def notice(number: int) -> bytes:
    return b"%d dropped\n" % number


def writer_to(output: FakeOutput, most_bytes: int = 1000, **thread: bool) -> LineWriter:
    return LineWriter(output, notice, most_bytes, FakeThread(**thread))


def test_lines_are_written_at_once_while_there_is_room() -> None:
    thread, output = FakeThread(), FakeOutput(100)
    writer = LineWriter(output, notice, start=thread)
    writer.put(b"one\n")
    writer.put(b"two\n")
    assert (output.written, thread.started, writer.flush(0.0)) == (b"one\ntwo\n", [], True)


def test_lines_without_room_keep_their_order_and_are_written_when_there_is_room() -> None:
    output = FakeOutput(4)
    writer = writer_to(output)
    for line in (b"one\n", b"two\n"):
        writer.put(line)
    output.room = 100
    writer.put(b"three\n")  # behind those that wait, although there is room
    assert (output.written, writer.flush(0.0)) == (b"one\n", False)
    writer.write_behind()
    assert (output.written, writer.flush(0.0)) == (b"one\ntwo\nthree\n", True)
    writer.put(b"four\n")
    assert output.written.endswith(b"three\nfour\n")


def test_what_waits_is_bounded_and_dropped_lines_are_counted_and_told_in_their_place() -> None:
    output = FakeOutput(0)
    writer = writer_to(output, most_bytes=40)
    for number in range(10):
        writer.put(b"line %04d\n" % number)  # 10 bytes: 4 fit
    assert (writer.dropped, repr(writer)) == (6, "<LineWriter, 40 bytes wait, 6 lines dropped>")
    writer.write_behind()
    writer.put(b"later\n")
    kept = b"".join(b"line %04d\n" % number for number in range(4))
    assert output.written == kept + b"6 dropped\nlater\n"


def test_errors_have_room_when_other_lines_have_none() -> None:
    output = FakeOutput(0)
    writer = writer_to(output, most_bytes=16)
    for line in (b"a line of 16 by\n", b"dropped\n"):
        writer.put(line)
    for line in (b"why\n", b"too long for the rest\n"):
        writer.put(line, error=True)
    writer.write_behind()
    assert output.written == b"a line of 16 by\n1 dropped\nwhy\n1 dropped\n"


def test_after_a_drop_lines_are_taken_again_when_half_of_the_room_is_free() -> None:
    output = FakeOutput(0)
    writer = writer_to(output, most_bytes=8200)
    first = b"a" * 4095 + b"\n"
    for line in (first, first, b"dropped\n" * 2, b"also dropped\n"):
        writer.put(line)
    output.wait = lambda: writer.put(b"too late\n")  # type: ignore[method-assign]  # the thread holds one line
    output.room = 4096
    with pytest.raises(RecursionError):
        _stop_after(writer, output)
    assert writer.dropped == 3
    output.wait = lambda: None  # type: ignore[method-assign]  # it has room
    output.room = 100_000
    writer.write_behind()
    assert output.written.endswith(b"3 dropped\ntoo late\n")


def _stop_after(writer: LineWriter, output: FakeOutput) -> None:
    """Writes behind until there is no room for the second time."""
    put = output.wait

    def wait() -> None:
        put()
        raise RecursionError

    output.wait = wait  # type: ignore[method-assign]  # the thread is watched
    writer.write_behind()


def test_a_long_line_that_began_is_written_to_its_end() -> None:
    output = FakeOutput(5000)
    writer = writer_to(output, most_bytes=10)
    line = b"x" * 20_000 + b"\n"
    writer.put(line)
    assert len(output.written) == 5000
    writer.write_behind()
    assert output.written == line
    assert not writer.dropped


def test_an_output_that_waits_is_written_by_the_thread_alone() -> None:
    thread, output = FakeThread(), FakeOutput(100, waits=True)
    writer = LineWriter(output, notice, start=thread)
    writer.put(b"one\n")
    assert (output.written, len(thread.started)) == (b"", 1)
    writer.write_behind()
    writer.put(b"two\n")
    writer.write_behind()
    assert (output.written, len(thread.started)) == (b"one\ntwo\n", 1)


def test_lines_that_nobody_reads_are_dropped_and_told_to_the_next_reader() -> None:
    output = FakeOutput(0)
    writer = writer_to(output)
    writer.put(b"waits\n")
    output.room = NOBODY
    writer.write_behind()
    writer.put(b"lost\n")
    assert (writer.dropped, writer.flush(0.0)) == (2, True)
    output.room = 100
    writer.put(b"read\n")
    assert output.written == b"2 dropped\nread\n"


def test_without_a_thread_lines_are_dropped_and_nothing_waits() -> None:
    output = FakeOutput(0)
    writer = writer_to(output, refuses=True)
    writer.put(b"one\n")
    assert (writer.dropped, writer.flush(0.0)) == (1, True)


def test_a_fork_begins_with_nothing_and_the_parent_writes_what_waits() -> None:
    read, write = os.pipe()
    output = FakeOutput(0)
    writer = writer_to(output)
    writer.put(b"of the parent\n")
    child = os.fork()
    if not child:
        output.room = 100
        writer.put(b"of the child\n")
        os.write(write, output.written)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"of the child\n"
    os.close(read)
    os.close(write)
    writer.write_behind()
    assert output.written == b"of the parent\n"
