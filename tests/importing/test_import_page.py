"""The page on imports, and the first commands of the README: they run in their order, and answer as the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.pages.commands import Command, Done, asked, commands, run, words
from tests.support.processes import ROOT, ServerProcess, serving

PAGE = (ROOT / "docs/import.md").read_text()
(PROGRAM,) = re.findall(r"^```python\n# make_models.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
IMPORTS = [each for each in commands("docs/import.md", "ferry") if words(each)[0] == "import"]
README_SERVE, README_CURL = commands("README.md", "ferry", "curl")[:2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader works: with the files of the page's program."""
    made = tmp_path_factory.mktemp("import")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=made, env=environment, check=True)
    (made / "samples.json").write_text(re.findall(r"^echo '(.*)' > samples.json$", PAGE, re.MULTILINE)[0])
    return made


@pytest.fixture(scope="module")
def imported(folder: Path) -> list[Done]:
    return [run(each, folder) for each in IMPORTS]


@pytest.fixture(scope="module")
def server(folder: Path, imported: list[Done]) -> Iterator[ServerProcess]:
    with serving(folder / "models", folder / "log") as server:
        yield server


def test_imports_tell_what_they_made(imported: list[Done]) -> None:
    line, photos, renamed = (each.output for each in imported)
    (shown,) = re.findall(r"^models/mine/1: .*$", PAGE, re.MULTILINE)
    assert _without_numbers(line.splitlines()[0]) == _without_numbers(shown)
    assert "input photo_bytes string[?], output kind float32[?,3]" in photos
    assert (
        "then: curl --data-binary @image.jpg -H 'Content-Type: image/jpeg' http://localhost:8501/v1/models/photos:pre"
        in photos
    )
    assert renamed.startswith("models/mine/2: ")
    assert "output price float32[?,1]" in renamed
    assert "3 labels for output 'kind'" in imported[1].told


def _without_numbers(line: str) -> str:
    return re.sub(r"[\d.]+ s$|\d+ calls|within \S+ |[\d.]+ (?=archive)|(?<=Keras )[\d.]+", "", line)


@pytest.mark.parametrize("command", commands("docs/import.md", "curl"), ids=str)
def test_curl_gets_the_answer_of_the_page(command: Command, server: ServerProcess, folder: Path) -> None:
    assert asked(command, folder, {8501: server.port}, within=0.01)


def test_the_readmes_two_commands_serve_a_file_of_keras(folder: Path, tmp_path: Path) -> None:
    assert words(README_SERVE) == ["serve", "model.keras"]
    started = ("-m", "app", "serve", str(folder / "model.keras"))
    with serving(folder / "models", tmp_path / "log", started) as server:
        assert asked(README_CURL, folder, {8501: server.port}) == '{"predictions":[[7.0],[21.0]]}'
