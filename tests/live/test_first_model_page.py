"""The page "your first own model": its programs run, its requests get the answers that it shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import ROOT, ServerProcess, serving

PAGE = (ROOT / "docs/first-model.md").read_text()
PROGRAMS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
REQUESTS = re.findall(r"^curl localhost:8501(\S+) -d '(.+)'\n```\n\n```json\n(.+)\n```$", PAGE, re.MULTILINE)


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
    with serving(folder / "mymodels", folder / "log") as server:
        yield server


def test_the_page_has_its_programs_and_requests() -> None:
    assert PROGRAMS.keys() == {"make_model.py", "ask.py", "make_function.py"}
    assert len(REQUESTS) == 2


@pytest.mark.parametrize(("path", "body", "answer"), REQUESTS, ids=[request[0] for request in REQUESTS])
def test_curl_gets_the_answer_of_the_page(server: ServerProcess, path: str, body: str, answer: str) -> None:
    reply = server.client.post(path, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert reply.status_code == 200
    assert numbers(reply.text) == pytest.approx(numbers(answer), abs=0.05)  # training starts from random weights
    assert json.loads(reply.text).keys() == json.loads(answer).keys()


def test_the_python_client_gets_the_answer_of_the_page(server: ServerProcess, folder: Path) -> None:
    printed = run("ask.py", folder, ("http://127.0.0.1:8501", server.url))
    np.testing.assert_allclose(numbers(printed), [7.0, 21.0], atol=0.05)


def test_a_row_of_the_wrong_width_gets_400_and_a_text_that_names_the_input(server: ServerProcess) -> None:
    reply = server.client.post("/v1/models/mine:predict", json={"instances": [[3.0, 10.0]]})
    assert reply.status_code == 400
    assert all(part in reply.json()["error"] for part in ("x", "[1,2]", "[?,1]"))


def test_inspect_shows_the_table_of_the_page(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", "inspect", str(folder / "mymodels/mine")],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""  # TensorFlow's libraries write lines about themselves
    shown = [line.split() for line in done.stdout.splitlines() if line.strip()]
    (table,) = re.findall(r"^ferry inspect mymodels/mine\n```\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    first, *rest = [line.split() for line in table.splitlines() if line.strip()]
    assert shown == [[f"{folder}/{first[0]}"], *rest]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(?<![\w.])-?\d+\.\d+", text)]
