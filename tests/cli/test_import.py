"""`ferry import` at the command line: where the version goes, what is told, and exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.config.settings import PREFIX
from tests.support.keras_files import make_classifier


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_classifier(tmp_path_factory.mktemp("source") / "My model (1).keras")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()


def ferry(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_file_becomes_the_next_version_of_its_name_and_the_line_says_how_to_call_it(source: Path) -> None:
    Path("models/My-model-1/4").mkdir(parents=True)
    result = ferry("import", source)
    assert result.exit_code == 0, result.stderr
    line, then = result.stdout.splitlines()
    assert line.startswith("models/My-model-1/5: Keras 3")
    assert "input pixels float32[?,2], output score float32[?,3]; equal to the source" in line
    assert then == (
        """ferry serve --models models, then: curl -d '{"instances":[[0.0,0.0]]}' """
        "http://localhost:8501/v1/models/My-model-1:predict"
    )
    asked = ferry("predict", "My-model-1", "-", "--models", "models")
    assert asked.exit_code == 1  # standard input is empty
    (Path("rows.json")).write_text('{"instances": [[0.0, 0.0]]}')
    answered = ferry("predict", "My-model-1", "rows.json", "--models", "models")
    assert sum(json.loads(answered.stdout)["predictions"][0]) == pytest.approx(1.0)


def test_a_version_a_new_name_and_other_names_of_tensors(source: Path) -> None:
    result = ferry("import", source, "elsewhere/mine/7", "--rename", "pixels=x:0", "--rename", "score=y")
    assert result.exit_code == 0, result.stderr
    assert "elsewhere/mine/7: " in result.stdout
    assert "input x:0 float32[?,2], output y float32[?,3]" in result.stdout
    again = ferry("import", source, "elsewhere/mine/7")
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == "ferry: elsewhere/mine/7 exists; the next free version is elsewhere/mine/8\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["none.keras"], 2, "there is no file or folder none.keras"),
        (["pipe.keras"], 1, "pipe.keras is no regular file"),
        (["endless.pb"], 1, "endless.pb is no regular file"),
        (["run"], 1, "run/artifacts/pipe is no regular file"),
        (["a.keras", "--accept", "png"], 2, "--accept is 'png', but should be jpeg or text"),
        (["a.keras", "--pixels", "0..1"], 2, "--pixels 0..1 needs --accept jpeg"),
        (["a.keras", "--accept", "text", "--pixels", "0..1"], 2, "--pixels 0..1 needs --accept jpeg"),
        (["a.keras", "--labels", "none"], 2, "--labels is 'none', but there is no such file"),
        (["a.keras", "--samples", "none.npz"], 2, "--samples is 'none.npz', but there is no such file"),
        (["notes.txt"], 1, "notes.txt is nothing that can be imported; expected is a .keras, .h5"),
        (["empty"], 1, "empty is nothing that can be imported; expected is"),
        (["a.keras", "notes.txt"], 1, "notes.txt is a file; a model's folder or a version's is expected"),
        (["a.keras", "--rename", "x"], 2, "--rename is 'x', but should be OLD=NEW"),
        (["a.keras", "--rename", "=x"], 2, "--rename is '=x', but should be OLD=NEW"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], code: int, told: str) -> None:
    Path("notes.txt").write_text("no model")
    Path("a.keras").write_text("no model")
    Path("empty").mkdir()
    Path("run/artifacts").mkdir(parents=True)
    os.mkfifo("pipe.keras")
    os.mkfifo("run/artifacts/pipe")
    Path("endless.pb").symlink_to("/dev/zero")
    result = ferry("import", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(f"ferry: {told}")
    assert result.stderr.count("\n") == 1
    assert os.listdir("models") == []


@pytest.mark.parametrize("command", ["predict", "inspect", "check"])
def test_other_commands_name_the_import(command: str) -> None:
    Path("a.keras").write_text("no model")
    result = ferry(command, "a.keras", *(["a.keras"] if command == "predict" else []))
    assert result.exit_code in {1, 2}
    assert "'ferry import a.keras models/a' makes a version of it" in result.stderr
