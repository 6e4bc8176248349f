import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import app.__main__
from tests.support.processes import ROOT
from tests.support.waiting import HANG_S


@pytest.mark.usefixtures("signals_restored")
def test_serve_takes_signals_before_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    left_with: list[int] = []
    monkeypatch.setattr("app.__main__.os._exit", left_with.append)
    monkeypatch.setattr("app.cli.main", lambda: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(sys, "argv", ["ferry", "serve"])
    app.__main__.main()
    assert left_with == [0]


@pytest.mark.usefixtures("signals_restored")
def test_other_commands_leave_signals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.main", lambda: None)
    monkeypatch.setattr(sys, "argv", ["ferry", "inspect", "m"])
    before = signal.getsignal(signal.SIGTERM)
    app.__main__.main()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_server_that_still_imports_ends_at_once_with_code_0(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("import signal\nprint('importing', flush=True)\nwhile True: signal.pause()\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "app", "serve", "--rest-port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0
