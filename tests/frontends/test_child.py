import asyncio
import signal
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.frontends import child
from app.frontends.child import Child, pause_s
from app.frontends.process_arguments import COULD_NOT_START, Arguments
from tests.support.waiting import HANG_S, until


def test_pauses_double_up_to_a_limit() -> None:
    assert [pause_s(failures) for failures in (1, 2, 3, 20)] == [0.1, 0.2, 0.4, 10.0]


def test_arguments_cross_a_command_line() -> None:
    settings = Settings(models=Path("there"), batch_sizes=[2, 4], max_batch_size=4, forbidden_variants=["xla"])
    arguments = Arguments(settings, [3, 5], "/path/engine", {"port": 8500})
    assert Arguments.parse(arguments.dump()) == arguments


LISTENS = "signal.signal(signal.SIGTERM, lambda *_: os._exit(1))\nopen('{ready}', 'w')\ntime.sleep(60)"


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    """The name of a module that a child can run, and which notes each of its lives in `lives`."""
    note = f"import os, sys, signal, time\nopen({str(folder / 'lives')!r}, 'a').write('x')\n"
    (folder / "life.py").write_text(note + body)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "life"


def lives(folder: Path) -> int:
    return len((folder / "lives").read_text()) if (folder / "lives").exists() else 0


def keep(made: Child) -> int:
    async def main() -> int:
        async with asyncio.timeout(HANG_S):
            return await made.keep()

    return asyncio.run(main())


def test_who_cannot_start_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, f"sys.exit({COULD_NOT_START})")
    assert keep(Child("It", name, Arguments(Settings(), []))) == COULD_NOT_START
    assert lives(tmp_path) == 1


def test_who_dies_is_started_again_until_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child, "pause_s", lambda failures: 0.0 if failures < 3 else 60.0)
    made = Child("It", module(tmp_path, monkeypatch, "sys.exit(1)"), Arguments(Settings(), []))

    async def main() -> int:
        keeping = asyncio.create_task(made.keep())
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
def test_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, how: signal.Signals, code: int
) -> None:
    ready = tmp_path / ("ready" if body == LISTENS else "lives")
    made = Child("It", module(tmp_path, monkeypatch, body.format(ready=ready)), Arguments(Settings(), []))

    async def main() -> int:
        keeping = asyncio.create_task(made.keep())
        await until(ready.exists)
        while not keeping.done():  # also while it ends: that must not cost its exit code
            made.end(how)
            await asyncio.sleep(0)
        return await keeping

    assert asyncio.run(main()) == code
    made.end(how)
