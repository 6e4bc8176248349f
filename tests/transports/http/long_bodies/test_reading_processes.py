"""Long bodies are read in processes, which may break, hang or not start."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from app.codecs.errors import BodyTooLarge
from app.core.errors import (
    BodyOverMemory,
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    NoMemoryLeft,
    ShuttingDown,
)
from app.transports.http.long_bodies.reading_process import ProcessEnded, ReadingProcess
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.memory.body_room import BodyRoom
from tests.support.waiting import HANG_S, until

Work = Callable[[ReadingProcess], Any]

_left_behind: list[bytes] = []


@pytest.fixture
def readers() -> Iterator[ReadingProcesses]:
    readers = ReadingProcesses()
    yield readers
    readers.close()


# --- what the processes call ---


def pid(_: None) -> int:
    return os.getpid()


def hang(_: None) -> None:
    threading.Event().wait()


def end(_: None) -> None:
    os._exit(1)


def leave_much(_: None) -> int:
    _left_behind.append(b"x" * (300 << 20))
    return os.getpid()


def modules(_: None) -> list[str]:
    return list(sys.modules)


def reject(_: None) -> None:
    raise RejectedThere(3)


def reject_as_too_large(_: None) -> None:
    raise BodyTooLarge("too large")


def fail(_: None) -> None:
    raise ZeroDivisionError("a bug")


class RejectedThere(InvalidRequest):
    """Made of something else than its text."""

    def __init__(self, number: int) -> None:
        super().__init__(f"rejected {number} times")


# --- how they are asked ---


def read(readers: ReadingProcesses, work: Work, *, left_s: float = HANG_S) -> Any:
    return asyncio.run(readers.read(work, lambda: "in a thread", left_s, 1))


def asks(function: Callable[[Any], Any]) -> Work:
    return lambda process: process.ask(function)


def lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_process_reads_many_bodies_and_is_not_this_one(readers: ReadingProcesses) -> None:
    first = read(readers, asks(pid))
    assert first == read(readers, asks(pid)) != os.getpid()
    assert repr(readers) == "<ReadingProcesses 1 idle, 0 busy>"


def test_it_imports_no_tensorflow(readers: ReadingProcesses) -> None:
    assert "tensorflow" not in read(readers, asks(modules))


def test_it_forgets_a_body_before_the_next_one(readers: ReadingProcesses) -> None:
    def keep(process: ReadingProcess) -> Any:
        process.keep(bytes, memoryview(b"body"))
        return process.ask(_same)

    assert read(readers, keep) == b"body"
    assert read(readers, asks(_same)) is None


def _same(kept: Any) -> Any:
    return kept


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (reject, InvalidRequest, "^rejected 3 times$"),
        (reject_as_too_large, BodyTooLarge, "^too large$"),
    ],
)
def test_errors_arrive_with_class_and_text_and_the_process_goes_on(
    readers: ReadingProcesses, function: Any, kind: type[Exception], text: str
) -> None:
    first = read(readers, asks(pid))
    with pytest.raises(kind, match=text) as raised:
        read(readers, asks(function))
    assert raised.type is kind
    assert read(readers, asks(pid)) == first


def test_a_bug_there_is_a_bug_here(readers: ReadingProcesses) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        read(readers, asks(fail))


def test_a_process_that_is_killed_is_replaced_and_the_body_is_read_once_more(readers: ReadingProcesses) -> None:
    tried: list[int] = []

    def work(process: ReadingProcess) -> int:
        tried.append(process.pid)
        if len(tried) == 1:
            os.kill(process.pid, signal.SIGKILL)
        return process.ask(pid)

    answered = read(readers, work)
    first, second = tried
    assert first != second == answered


def test_a_body_that_ends_each_process_is_rejected_and_the_next_one_is_read(readers: ReadingProcesses) -> None:
    tried: list[int] = []

    def work(process: ReadingProcess) -> Any:
        tried.append(process.pid)
        return process.ask(end)

    with pytest.raises(InferenceFailed, match="ended, twice"):
        read(readers, work)
    assert len(tried) == 2
    assert read(readers, asks(pid)) not in tried


# --- in a container ---


@pytest.fixture
def contained() -> Iterator[ReadingProcesses]:
    room = BodyRoom(lambda: 100.0 * 2**20)
    room.measure()
    readers = ReadingProcesses(room)
    yield readers
    readers.close()


def take_much(_: None) -> int:
    return len(b"x" * (300 << 20))


def test_a_body_that_takes_more_than_is_reserved_is_rejected_and_the_process_goes_on(
    contained: ReadingProcesses,
) -> None:
    first = read(contained, asks(pid))
    with pytest.raises(BodyOverMemory, match="more memory to read than is kept"):
        read(contained, asks(take_much))
    assert read(contained, asks(pid)) == first


def test_one_that_breaks_each_process_there_is_rejected_for_its_memory(contained: ReadingProcesses) -> None:
    with pytest.raises(BodyOverMemory):
        read(contained, asks(end))


def test_one_whose_processes_the_system_kills_is_told_to_try_again(contained: ReadingProcesses) -> None:
    def work(process: ReadingProcess) -> Any:
        os.kill(process.pid, signal.SIGKILL)
        return process.ask(pid)

    with pytest.raises(NoMemoryLeft, match="memory runs out"):
        read(contained, work)


def test_without_a_limit_a_process_takes_what_it_needs(readers: ReadingProcesses) -> None:
    assert read(readers, asks(take_much)) == 300 << 20


def test_an_idle_process_that_ended_is_replaced(readers: ReadingProcesses) -> None:
    first = read(readers, asks(pid))
    os.kill(first, signal.SIGKILL)
    assert read(readers, asks(pid)) != first


def test_idle_processes_that_ended_are_no_try_of_a_body(readers: ReadingProcesses) -> None:
    both, pids = threading.Barrier(2, timeout=HANG_S), set[int]()

    def together(process: ReadingProcess) -> None:
        both.wait()
        pids.add(process.ask(pid))

    async def start_both() -> None:
        await asyncio.gather(*[readers.read(together, lambda: None, HANG_S, 1) for _ in range(2)])

    def work(process: ReadingProcess) -> int:
        while pids:
            each = pids.pop()
            os.kill(each, signal.SIGKILL)
            os.waitid(os.P_PID, each, os.WEXITED | os.WNOWAIT)
        return process.ask(pid)

    asyncio.run(start_both())
    assert lives(read(readers, work))


def test_a_body_that_is_not_read_by_its_deadline_ends_the_process(readers: ReadingProcesses) -> None:
    first: list[int] = []

    def work(process: ReadingProcess) -> Any:
        first.append(process.ask(pid))
        process.limit(lambda: 0.1)
        return process.ask(hang)

    with pytest.raises(DeadlineExceeded):
        read(readers, work)
    asyncio.run(until(lambda: not lives(first[0])))
    assert read(readers, asks(pid)) != first[0]


def test_a_body_without_time_left_is_not_read_and_the_process_stays(readers: ReadingProcesses) -> None:
    first = read(readers, asks(pid))
    with pytest.raises(DeadlineExceeded):
        read(readers, asks(pid), left_s=0.0)
    assert read(readers, asks(pid)) == first


def test_a_process_that_a_body_left_large_is_replaced(readers: ReadingProcesses) -> None:
    assert read(readers, asks(leave_much)) != read(readers, asks(pid))


def test_without_processes_a_thread_reads_and_the_log_says_so_once(
    readers: ReadingProcesses, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for program in ("/nowhere/python", "/bin/false"):  # one does not start, one ends at once
        monkeypatch.setattr(sys, "executable", program)
        assert read(readers, asks(pid)) == "in a thread"
    (line,) = caplog.messages
    assert "threads read them" in line


def test_two_bodies_are_read_at_a_time(readers: ReadingProcesses) -> None:
    both = threading.Barrier(2, timeout=HANG_S)

    def work(process: ReadingProcess) -> int:
        both.wait()
        return process.ask(pid)

    async def main() -> list[int]:
        return await asyncio.gather(*[readers.read(work, lambda: 0, HANG_S, 1) for _ in range(4)])

    assert len(set(asyncio.run(main()))) == 2


def test_very_long_bodies_do_not_hold_up_a_long_one(readers: ReadingProcesses) -> None:
    going_on = threading.Event()

    def very_long(process: ReadingProcess) -> bool:
        return going_on.wait(HANG_S)

    async def main() -> None:
        slow = [asyncio.ensure_future(readers.read(very_long, lambda: False, HANG_S, 1 << 26)) for _ in range(3)]
        await asyncio.sleep(0)  # lets them begin
        await readers.read(asks(pid), lambda: 0, HANG_S, 1 << 20)
        assert not any(each.done() for each in slow)
        going_on.set()
        assert await asyncio.gather(*slow) == [True] * 3

    asyncio.run(main())


def test_closing_ends_idle_and_busy_processes(readers: ReadingProcesses) -> None:
    pids: list[int] = []
    hanging = threading.Event()

    def work(process: ReadingProcess) -> Any:
        pids.append(process.ask(pid))
        hanging.set()
        return process.ask(hang)

    async def main() -> None:
        busy = asyncio.ensure_future(readers.read(work, lambda: None, HANG_S, 1))
        await asyncio.to_thread(hanging.wait, HANG_S)
        pids.append(await readers.read(asks(pid), lambda: 0, HANG_S, 1))
        readers.close()
        with pytest.raises(ShuttingDown):
            await busy
        with pytest.raises(ShuttingDown):
            await readers.read(asks(pid), lambda: 0, HANG_S, 1)
        await until(lambda: not any(map(lives, pids)))

    asyncio.run(main())
    assert len(set(pids)) == 2


# --- what becomes of each process that was started ---


class Scripted:
    """A process that becomes ready as it is told, and ends when it is killed."""

    made: ClassVar[list[Scripted]] = []
    starting: ClassVar[Callable[[], object]] = list  # called while one starts
    late: ClassVar[dict[int, bool]] = {}  # by number, of those that are not ready in time: do they hang?

    def __init__(self) -> None:
        self.number = len(self.made)
        self.made.append(self)
        self.ended = self.was_ready = False
        self.hangs = self.late.get(self.number, False)
        type(self).starting()

    def begin(self, _: Callable[[], float]) -> None:
        if self.ended:
            raise ProcessEnded
        if self.number in self.late:
            raise TimeoutError
        self.was_ready = True

    def finish(self) -> None:
        if self.ended:
            raise ProcessEnded

    def bound(self, *_: object) -> None:
        """Its memory has no bounds."""

    def kill(self) -> None:
        self.ended = True

    end = kill


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    monkeypatch.setattr("app.transports.http.long_bodies.reading_processes.ReadingProcess", Scripted)
    for name, value in {"made": [], "starting": list, "late": {}}.items():
        monkeypatch.setattr(Scripted, name, value)
    return Scripted


def number_of(process: Any) -> int:
    number: int = process.number
    return number


def test_a_process_that_starts_while_the_server_closes_ends_too(scripted: type[Scripted]) -> None:
    readers = ReadingProcesses()
    scripted.starting = readers.close
    with pytest.raises(ShuttingDown):
        read(readers, number_of)
    assert [each.ended for each in scripted.made] == [True]
    assert repr(readers) == "<ReadingProcesses 0 idle, 0 busy>"


@pytest.mark.parametrize("hangs", [True, False])
def test_one_that_is_not_ready_in_time_for_a_body_may_be_for_the_next_one_unless_it_hangs(
    scripted: type[Scripted], readers: ReadingProcesses, hangs: bool
) -> None:
    scripted.late[0] = hangs
    with pytest.raises(DeadlineExceeded):
        read(readers, number_of)
    scripted.late.clear()
    assert read(readers, number_of) == int(hangs)
    assert [each.ended for each in scripted.made] == ([True, False] if hangs else [False])
    assert repr(readers) == "<ReadingProcesses 1 idle, 0 busy>"
