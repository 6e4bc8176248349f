"""The page "your first own model": its programs run, its requests get the answers that it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.pages.commands import Command, asked, commands, words
from tests.support.forks.programs import run_program
from tests.support.processes import ROOT, ServerProcess, serving

PAGE = (ROOT / "docs/first-model.md").read_text()
PROGRAMS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
REQUESTS = commands("docs/first-model.md", "curl")
(SERVE,) = (each for each in commands("docs/first-model.md", "ferry") if words(each)[0] == "serve")


def run(program: str, folder: Path, *changes: tuple[str, str]) -> str:
    """Runs a program of the page in the folder; returns what it printed."""
    text = PROGRAMS[program]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = f"{ROOT}:{ROOT / 'clients/python'}"
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("first-model")
    run("make_model.py", made)
    run("make_function.py", made)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    started = ("-m", "app", *words(SERVE, {"mymodels": str(folder / "mymodels")}))
    with serving(folder / "mymodels", folder / "log", started) as server:
        yield server


def test_the_page_has_its_programs_and_requests() -> None:
    assert PROGRAMS.keys() == {"make_model.py", "ask.py", "make_function.py"}
    assert [each.answer is not None for each in REQUESTS] == [True, True, True]


@pytest.mark.parametrize("command", REQUESTS, ids=str)
def test_curl_gets_the_answer_of_the_page(server: ServerProcess, folder: Path, command: Command) -> None:
    assert asked(command, folder, {8501: server.port}, within=0.05)  # training starts from random weights


def test_the_python_client_gets_the_answer_of_the_page(server: ServerProcess, folder: Path) -> None:
    printed = run("ask.py", folder, ("http://127.0.0.1:8501", server.url))
    np.testing.assert_allclose(numbers(printed), [7.0, 21.0], atol=0.05)


def test_inspect_shows_the_table_of_the_page(folder: Path) -> None:
    done = run_program("-m", "app", "inspect", str(folder / "mymodels/mine"))
    assert (done.returncode, done.stderr) == (0, "")  # TensorFlow's libraries write lines about themselves
    shown = [line.split() for line in done.stdout.splitlines() if line.strip()]
    (table,) = re.findall(r"^ferry inspect mymodels/mine\n```\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    first, *rest = [line.split() for line in table.splitlines() if line.strip()]
    assert shown == [[f"{folder}/{first[0]}"], *rest]


def test_check_tells_what_the_server_logs(folder: Path, server: ServerProcess) -> None:
    (check,) = (each for each in commands("docs/first-model.md", "ferry") if words(each)[0] == "check")
    done = run_program("-m", "app", *words(check, {"mymodels": str(folder / "mymodels")}))
    assert (done.returncode, done.stderr) == (0, "")
    for model in ("mine", "scale"):
        assert (
            f"  Model {model} version 1, signature 'serving_default': requests share calls, proven by graph\n"
            in done.stdout
        )


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(?<![\w.])-?\d+\.\d+", text)]
