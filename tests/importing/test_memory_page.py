"""The page on models in memory: its programs run, and write models with names and a free number of rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.runtimes.tensorflow.saved_model.offline_signatures import offline_signatures
from tests.support.processes import ROOT

PAGE = (ROOT / "docs/export-from-memory.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of the page ran, in one process after the other's imports."""
    made = tmp_path_factory.mktemp("memory")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    program = "\n".join(PROGRAMS)
    subprocess.run([sys.executable, "-c", program], cwd=made, env=environment, check=True, capture_output=True)
    return made


@pytest.mark.parametrize(
    ("version", "inputs", "outputs"),
    [
        ("digits_by_keras/1", {"image": "float32[?,28,28,1]"}, {"probabilities": "float32[?,10]"}),
        ("digits_by_keras_2/1", {"image": "float32[?,28,28,1]"}, {"probabilities": "float32[?,10]"}),
        ("scaled/1", {"rows": "float32[?,3]"}, {"scaled": "float32[?,3]"}),
    ],
)
def test_a_program_writes_a_model_with_names_and_free_rows(
    folder: Path, version: str, inputs: dict[str, str], outputs: dict[str, str]
) -> None:
    signature = offline_signatures(folder / "models" / version)["serving_default"]
    assert {name: str(spec) for name, spec in signature.inputs.items()} == inputs
    assert {name: str(spec) for name, spec in signature.outputs.items()} == outputs


def test_programs_that_need_more_than_tests_have_are_python() -> None:
    for text in re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        compile(text, "docs/export-from-memory.md", "exec")
