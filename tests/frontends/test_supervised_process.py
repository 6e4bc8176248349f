import asyncio
import signal
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.frontends import supervised_process
from app.frontends.process_arguments import COULD_NOT_START, ProcessArguments
from app.frontends.process_starts import NewInterpreter, Started
from app.frontends.supervised_process import SupervisedProcess, pause_s
from tests.support.waiting import HANG_S, until


def test_pauses_double_up_to_a_limit() -> None:
    assert [pause_s(failures) for failures in (1, 2, 3, 20)] == [0.1, 0.2, 0.4, 10.0]


def test_arguments_cross_a_pipe() -> None:
    settings = Settings(models=Path("there"), batch_sizes=[2, 4], max_batch_size=4, allowed_operations=["ReadFile"])
    arguments = ProcessArguments(settings, [3, 5], "/path/engine", {"port": 8500}, [7, 8])
    assert ProcessArguments.parse(arguments.line()) == arguments
    assert arguments.files == [3, 5, 7, 8]


NO_ARGUMENTS = ProcessArguments(Settings(), [])


def process(name: str, arguments: ProcessArguments = NO_ARGUMENTS) -> SupervisedProcess:
    return SupervisedProcess("It", NewInterpreter(name, arguments))


LISTENS = "signal.signal(signal.SIGTERM, lambda *_: os._exit(1))\nopen('{ready}', 'w')\ntime.sleep(60)"


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    """The name of a module that a child can run, and which notes each of its lives in `lives`."""
    note = f"import os, sys, signal, time\nopen({str(folder / 'lives')!r}, 'a').write('x')\n"
    (folder / "life.py").write_text(note + body)
    monkeypatch.syspath_prepend(folder)
    return "life"


def lives(folder: Path) -> int:
    return len((folder / "lives").read_text()) if (folder / "lives").exists() else 0


def keep_running(made: SupervisedProcess) -> int:
    async def main() -> int:
        async with asyncio.timeout(HANG_S):
            return await made.keep_running()

    return asyncio.run(main())


def test_a_process_that_cannot_start_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, f"sys.exit({COULD_NOT_START})")
    assert keep_running(process(name)) == COULD_NOT_START
    assert lives(tmp_path) == 1


def test_a_process_that_ends_is_started_again_until_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervised_process, "pause_s", lambda failures: 0.0 if failures < 3 else 60.0)
    made = process(module(tmp_path, monkeypatch, "sys.exit(1)"))

    async def main() -> int:
        keeping = asyncio.create_task(made.keep_running())
        await until(lambda: "restart 3" in caplog.text)
        made.end(signal.SIGTERM)
        return await keeping

    assert asyncio.run(main()) == 0
    assert lives(tmp_path) == 3
    assert "ended with exit code 1; restart 2 in 0 s" in caplog.text


@pytest.mark.parametrize(
    ("body", "how", "code"),
    [
        ("time.sleep(60)", signal.SIGTERM, 0),  # it had not begun to listen
        ("time.sleep(60)", signal.SIGKILL, -9),
        (LISTENS, signal.SIGTERM, 1),
    ],
)
def test_the_exit_code_of_a_process_that_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, how: signal.Signals, code: int
) -> None:
    ready = tmp_path / ("ready" if body == LISTENS else "lives")
    made = process(module(tmp_path, monkeypatch, body.format(ready=ready)))

    async def main() -> int:
        keeping = asyncio.create_task(made.keep_running())
        await until(ready.exists)
        while not keeping.done():  # also while it ends: that must not cost its exit code
            made.end(how)
            await asyncio.sleep(0)
        return await keeping

    assert asyncio.run(main()) == code
    made.end(how)


def test_arguments_come_by_standard_input_and_nothing_of_them_is_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine can read command lines."""
    body = (
        "from pathlib import Path\n"
        "from app.frontends.process_arguments import COULD_NOT_START, received\n"
        f"Path({str(tmp_path / 'received')!r}).write_bytes(received().line())\n"
        f"Path({str(tmp_path / 'line')!r}).write_bytes(Path('/proc/self/cmdline').read_bytes())\n"
        "sys.exit(COULD_NOT_START)"
    )
    name = module(tmp_path, monkeypatch, body)
    arguments = ProcessArguments(Settings(models=tmp_path / ("secret" * 30)), [], flags={"key": "x" * 200_000})
    assert keep_running(process(name, arguments)) == COULD_NOT_START
    assert ProcessArguments.parse((tmp_path / "received").read_bytes()) == arguments
    assert (tmp_path / "line").read_bytes().split(b"\0")[1:] == [b"-P", b"-m", name.encode(), b""]


def test_modules_are_found_where_the_parent_finds_them_and_never_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = tmp_path / "hostile"
    (hostile / "app").mkdir(parents=True)
    for stranger in (hostile / "app/__init__.py", hostile / "life.py"):
        stranger.write_text("raise SystemExit('a module of the working directory')")
    monkeypatch.chdir(hostile)
    body = f"import app.config.settings\nsys.exit({COULD_NOT_START})"
    made = process(module(tmp_path, monkeypatch, body))
    assert keep_running(made) == COULD_NOT_START
    assert lives(tmp_path) == 1


class Lives:
    """A ProcessStart whose processes have numbers, and end when they are told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = asyncio.Event()
        self.runs = 0  # the number of the process that runs, else 0

    async def run(self, started: Started) -> int:
        self.begun += 1
        self.runs = self.begun
        started(self.begun)
        await self.ended.wait()
        self.ended.clear()
        self.runs = 0
        return 1

    async def close(self) -> None:
        assert not self.runs, "no process is left"


@pytest.mark.parametrize("lives", [1, 3])
@pytest.mark.parametrize("ends_first", [False, True], ids=["while it runs", "after its end"])
def test_a_signal_is_for_the_process_that_runs_and_for_no_other(
    lives: int, ends_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system gives the number of a process that has ended to another one."""
    start = Lives()
    sent: list[int] = []

    def kill(number: int, _: int) -> None:
        assert number == start.runs, "it has ended"
        sent.append(number)
        start.ended.set()

    monkeypatch.setattr("app.frontends.supervised_process.os.kill", kill)
    monkeypatch.setattr(supervised_process, "pause_s", lambda failures: 0.0 if failures < lives else 60.0)
    made = SupervisedProcess("It", start)

    async def main() -> None:
        keeping = asyncio.create_task(made.keep_running())
        for number in range(1, lives + ends_first):
            await until(lambda number=number: start.runs == number)  # type: ignore[misc]  # bound now
            start.ended.set()
            await until(lambda number=number: start.runs != number)  # type: ignore[misc]  # bound now
        if not ends_first:
            await until(lambda: start.runs == lives)
        made.end(signal.SIGTERM)
        await keeping
        made.end(signal.SIGKILL)  # as to all that may be left

    asyncio.run(main())
    assert sent == ([] if ends_first else [lives])
    assert start.begun == lives
