"""Forks of a parent that has made their imports; `tests/frontends/test_supervised_process.py` has new interpreters."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.frontends import supervised_process
from app.frontends.process_arguments import COULD_NOT_START, ProcessArguments
from app.frontends.process_starts import Fork
from app.frontends.supervised_process import SupervisedProcess
from tests.support.processes import has_ended
from tests.support.waiting import HANG_S, until, wait_until

ARGUMENTS = ProcessArguments(Settings(), [])

#: `prepared` and `started`: the numbers of the processes that did. A fork first makes standard input non-blocking, as
#: an event loop does.
MODULE = """
import os, signal, sys, time
from app.frontends.engine.engine_forks import fork_engines

def note(file):
    print(os.getpid(), file=open(f"{folder}/{{file}}", "a"), flush=True)

def main(text):
    os.set_blocking(0, False)
    note("started")
    {main}

if __name__ == "__main__":
    sys.exit(fork_engines(main, lambda: note("prepared")))
"""

WAITS = "time.sleep(600)"


class Forks:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervised = SupervisedProcess("It", Fork("forks", ARGUMENTS))

    def module(self, main: str) -> None:
        (self.folder / "forks.py").write_text(MODULE.format(folder=self.folder, main=main))

    def numbers(self, file: str) -> list[int]:
        path = self.folder / file
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    async def nth(self, file: str, count: int) -> int:
        await until(lambda: len(self.numbers(file)) == count)
        return self.numbers(file)[-1]


@pytest.fixture
def forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forks]:
    monkeypatch.setattr(supervised_process, "pause_s", lambda _: 0.0)
    monkeypatch.syspath_prepend(tmp_path)
    made = Forks(tmp_path)
    yield made
    wait_until(lambda: all(has_ended(number) for number in made.numbers("prepared") + made.numbers("started")))


def test_a_process_that_is_killed_is_forked_again_without_its_imports(forks: Forks) -> None:
    forks.module(WAITS)

    async def main() -> int:
        keeping = asyncio.create_task(forks.supervised.keep_running())
        for count in range(1, 4):
            os.kill(await forks.nth("started", count), signal.SIGKILL)
        await forks.nth("started", 4)
        forks.supervised.end(signal.SIGTERM)
        async with asyncio.timeout(HANG_S):
            return await keeping

    assert asyncio.run(main()) == 0
    assert len(forks.numbers("prepared")) == 1


def test_a_fork_ends_with_its_parent_and_gets_another(forks: Forks) -> None:
    forks.module(WAITS)

    async def main() -> None:
        keeping = asyncio.create_task(forks.supervised.keep_running())
        first = await forks.nth("started", 1)
        os.kill(await forks.nth("prepared", 1), signal.SIGKILL)
        await forks.nth("started", 2)
        assert has_ended(first)
        forks.supervised.end(signal.SIGKILL)
        async with asyncio.timeout(HANG_S):
            assert await keeping == -signal.SIGKILL

    asyncio.run(main())
    assert len(forks.numbers("prepared")) == 2


def test_a_signal_to_all_processes_leaves_a_fork_the_time_to_end(forks: Forks) -> None:
    """A service manager may send one to each."""
    forks.module("signal.signal(signal.SIGTERM, lambda *_: os._exit(7)); note('ready'); " + WAITS)

    async def main() -> int:
        keeping = asyncio.create_task(forks.supervised.keep_running())
        await forks.nth("ready", 1)
        for number in forks.numbers("prepared"):
            os.kill(number, signal.SIGTERM)
        forks.supervised.end(signal.SIGTERM)
        async with asyncio.timeout(HANG_S):
            return await keeping

    assert asyncio.run(main()) == 7


def test_a_process_that_is_told_to_end_while_it_imports_ends(tmp_path: Path, forks: Forks) -> None:
    forks.module(WAITS)
    (tmp_path / "forks.py").write_text((tmp_path / "forks.py").read_text().replace('note("prepared")', WAITS))

    async def main() -> int:
        keeping = asyncio.create_task(forks.supervised.keep_running())
        await until(lambda: forks.supervised._number != 0)
        forks.supervised.end(signal.SIGTERM)
        async with asyncio.timeout(HANG_S):
            return await keeping

    assert asyncio.run(main()) == 0


def test_the_exit_code_is_that_of_the_fork(forks: Forks) -> None:
    forks.module(f"return {COULD_NOT_START}")
    assert asyncio.run(forks.supervised.keep_running()) == COULD_NOT_START
    assert (len(forks.numbers("prepared")), len(forks.numbers("started"))) == (1, 1)
