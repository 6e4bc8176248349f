"""What was left out of the image is missed by no library of operations: decision forests, and TensorFlow Text.

The libraries of this environment are mounted where FLAVOUR=forests and FLAVOUR=text install them: these locks differ by
them from FLAVOUR=serve.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deploy.image.container import START_S, Container, eventually, running
from tests.live.libraries.test_decision_forests import KINDS
from tests.live.libraries.test_decision_forests import MODELS as FORESTS
from tests.support.forks.programs import run_program

_PACKAGES = "/venv/lib/python3.11/site-packages"


def _mounted(package: str) -> Iterator[str]:
    """The options of Docker that put an installed package into the image's environment."""
    found = distribution(package)
    for folder in sorted({file.parts[0] for file in found.files or () if len(file.parts) > 1}):
        yield from ("-v", f"{found.locate_file(folder)}:{_PACKAGES}/{folder}:ro")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries") / "models"
    done = run_program("-m", "tests.support.models.text_models", str(folder))
    assert done.returncode == 0, done.stderr
    for kind in KINDS:
        shutil.copytree(FORESTS / kind, folder / kind)
    # Assets are written for their owner alone, and the container has a user of its own.
    for path in (folder.parent, folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture(scope="module")
def container(folder: Path) -> Iterator[Container]:
    mounted = [*_mounted("ydf-tf"), *_mounted("tensorflow-text")]
    with running("-v", f"{folder}:/models:ro", "-e", "FERRY_DRAIN_GRACE_S=0", *mounted) as container:
        eventually(container.is_ready, START_S)
        yield container


def _predictions(container: Container, model: str, rows: list[Any]) -> Any:
    status, body = container.ask("POST", f"/v1/models/{model}:predict", {"instances": rows})
    assert status == 200, body
    return json.loads(body)["predictions"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_decision_forest_answers(container: Container, kind: str) -> None:
    lines = [json.loads(line) for line in (FORESTS / kind / "answers.jsonl").read_text().splitlines()]
    answers = _predictions(container, kind, [line["row"] for line in lines])
    np.testing.assert_allclose(answers, [line["answer"] for line in lines], rtol=0, atol=1e-6)


@pytest.mark.parametrize("model", ["bert", "fast_bert", "sentencepiece"])
def test_a_model_of_text_answers(container: Container, folder: Path, model: str) -> None:
    made = json.loads(folder.with_suffix(".json").read_text())
    answers = _predictions(container, model, made["texts"])
    np.testing.assert_allclose(answers, made["answers"][model], rtol=1e-5, atol=1e-6)
