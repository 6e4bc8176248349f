"""The runtimes of one process: each folder is loaded by its own, and the other one costs nothing until it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.model_files import runtime_of
from tests.support import savedmodels
from tests.support.tflite.tflite_models import make_tflite

PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from app.runtime import RuntimeOptions
from app.runtimes.by_files import RuntimesByFiles

runtimes = RuntimesByFiles(sys.argv[1], RuntimeOptions())
for folder in sys.argv[2:]:
    model = runtimes.load(Path(folder))
    answer = model.run("serving_default", {"x": np.float32([2.0])}, ())["y"].tolist()
    imported = [name for name in ("tensorflow", "ai_edge_litert") if name in sys.modules]
    print(json.dumps([answer, imported, len(runtimes.started)]))
"""


def load_apart(preferred: str, *folders: Path) -> list[object]:
    """In a process of its own: the answer of each model, what is imported then, and the number of runtimes."""
    command = [sys.executable, "-c", PROGRAM, preferred, *map(str, folders)]
    return [json.loads(line) for line in subprocess.run(command, capture_output=True, check=True).stdout.splitlines()]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    savedmodels.make_half_plus_two(folder / "saved" / "1")
    make_tflite(savedmodels.make_half_plus_two, folder / "lite" / "1")
    return folder / "saved" / "1", folder / "lite" / "1"


def test_litert_is_imported_with_the_first_model_that_needs_it(models: tuple[Path, Path]) -> None:
    assert load_apart("tensorflow", *models) == [
        [[3.0], ["tensorflow"], 1],
        [[3.0], ["tensorflow", "ai_edge_litert"], 2],
    ]


def test_a_server_of_tflite_models_needs_no_tensorflow(models: tuple[Path, Path]) -> None:
    saved, lite = models
    assert load_apart("litert", lite, saved) == [
        [[3.0], ["ai_edge_litert"], 1],
        [[3.0], ["tensorflow", "ai_edge_litert"], 2],
    ]


@pytest.mark.parametrize(
    ("files", "by_tensorflow", "by_litert"),
    [
        (["saved_model.pb"], "tensorflow", "tensorflow"),
        (["saved_model.pbtxt"], "tensorflow", "tensorflow"),
        (["model.tflite"], "litert", "litert"),
        (["saved_model.pb", "model.tflite"], "tensorflow", "litert"),
        ([], "tensorflow", "litert"),
    ],
)
def test_the_preferred_runtime_serves_unless_only_another_has_files(
    tmp_path: Path, files: list[str], by_tensorflow: str, by_litert: str
) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert runtime_of(tmp_path, "tensorflow") == by_tensorflow
    assert runtime_of(tmp_path, "litert") == by_litert
    assert runtime_of(tmp_path, "another") == "another"
