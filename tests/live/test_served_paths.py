"""`ferry serve PATH`: a file of Keras, its import a second time, a version and a model where they lie."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import app
from tests.support.keras_files import WEIGHTS, make_classifier
from tests.support.processes import ARRANGEMENTS, ServerProcess, serving
from tests.support.waiting import wait_until

DIGITS = Path(__file__).parents[2] / "models" / "digits"

ROWS = [[0.0, 0.0], [1.0, -2.0], [3.5, 0.25]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_classifier(tmp_path_factory.mktemp("source") / "mine.keras")


def _answers(server: ServerProcess) -> None:
    asked = server.client.post("/v1/models/mine:predict", json={"instances": ROWS})
    powers = np.exp(np.matmul(ROWS, WEIGHTS))
    np.testing.assert_allclose(asked.json()["predictions"], powers / powers.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_a_file_of_keras_is_imported_once_and_answers(source: Path, tmp_path: Path, frontends: int) -> None:
    logs = []
    for log in (tmp_path / "first.log", tmp_path / "second.log"):
        command = ("-m", "app", "serve", str(source))
        with serving(tmp_path, log, command, frontends=frontends) as server:
            _answers(server)
        logs.append(log.read_text())
    assert (frontends > 0) is ("equal to the source" not in logs[0])  # the first arrangement has imported it
    assert "mine: Keras 3" not in logs[1]
    assert all("/v1/models/mine:predict" in each for each in logs)


def test_a_signal_during_the_import_ends_the_server_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    other = shutil.copy(source, tmp_path / "other.keras")
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "ferry" / "imported"
    before = set(cache.iterdir()) if cache.exists() else set()
    with serving(tmp_path, tmp_path / "log", ("-m", "app", "serve", str(other)), ready=False) as server:

        def imports() -> bool:
            return cache.exists() and any(cache.glob("*/.ferry-import-*"))

        wait_until(imports)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM
    left = set(cache.iterdir()) - before
    assert [each for entry in left for each in entry.rglob("*")] == []


@pytest.mark.parametrize("path", [DIGITS, DIGITS / "1", DIGITS / "1" / "saved_model.pb"])
def test_a_model_and_a_version_are_served_where_they_lie(path: Path, tmp_path: Path) -> None:
    with serving(tmp_path, tmp_path / "log", ("-m", "app", "serve", str(path))) as server:
        status = server.client.get("/v1/models/digits").json()["model_version_status"]
        assert [(each["version"], each["state"]) for each in status] == [("1", "AVAILABLE")]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["none.keras"], 2, "there is no file or folder none.keras"),
        (["a.keras", "--models", "."], 2, "--models and PATH should not be given both: PATH is 'a.keras'"),
        (["notes.txt"], 1, "is nothing that can be imported; expected is"),
        (["a.keras", "--max-batch-size", "no"], 2, "--max-batch-size is 'no'"),
        (["a.pkl"], 1, "a.pkl is a pickle, which runs code when it is read"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.keras", "notes.txt", "a.pkl"):
        (tmp_path / name).write_text("no model")
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == code
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
