"""Calls in processes that can be given up. A pipe that nobody writes to stands in for a mount that does not answer."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.repository.disk.storage import StorageProcesses, StorageSilent
from app.repository.model_sources import ModelsFolder
from tests.repository.fakes import add
from tests.support.waiting import HANG_S, until

#: Long enough for a call that is answered on a busy machine, short for one that is not.
TIMEOUT_S = 1.0


def play(steps: Callable[[StorageProcesses], Awaitable[None]], timeout_s: float = HANG_S) -> None:
    async def run() -> None:
        storage = StorageProcesses(timeout_s)
        try:
            await steps(storage)
        finally:
            storage.close()

    asyncio.run(run())


def test_it_calls_and_raises_as_here(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)

    async def steps(storage: StorageProcesses) -> None:
        assert await storage.call(ModelsFolder(tmp_path).scan, frozenset()) == ModelsFolder(tmp_path).scan()
        with pytest.raises(FileNotFoundError, match="nowhere"):
            await storage.call((tmp_path / "nowhere").read_bytes)
        assert await storage.call(os.getpid) != os.getpid()

    play(steps)


def test_one_process_serves_many_calls(tmp_path: Path) -> None:
    async def steps(storage: StorageProcesses) -> None:
        assert len({await storage.call(os.getpid) for _ in range(3)}) == 1
        assert repr(storage) == "<StorageProcesses 1 idle, 0 busy>"

    play(steps)


def test_a_call_that_hangs_is_given_up_and_the_next_one_answers(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def steps(storage: StorageProcesses) -> None:
        first = await storage.call(os.getpid)
        with pytest.raises(StorageSilent, match=r"^the storage does not answer: nothing came from .* for 1 s$"):
            await storage.call(pipe.read_bytes)
        assert await storage.call(os.getpid) != first

    play(steps, TIMEOUT_S)


def test_a_call_that_hangs_holds_up_no_other_and_ends_with_the_storage(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def steps(storage: StorageProcesses) -> None:
        starting = asyncio.create_task(storage.call(pipe.read_bytes))
        await storage.call(os.getpid)
        assert not starting.done()
        hanging = asyncio.create_task(storage.call(pipe.read_bytes))
        await until(lambda: repr(storage) == "<StorageProcesses 0 idle, 2 busy>")
        storage.close()
        for each in (starting, hanging):
            with pytest.raises(OSError, match="ended"):
                await each
        with pytest.raises(OSError, match="the server stops"):
            await storage.call(os.getpid)

    play(steps)
    assert not [thread for thread in threading.enumerate() if not thread.daemon and "storage" in thread.name]


def test_a_process_that_dies_is_replaced() -> None:
    async def steps(storage: StorageProcesses) -> None:
        with pytest.raises(OSError, match="ended"):
            await storage.call(os._exit, 1)
        assert await storage.call(os.getpid)

    play(steps)
