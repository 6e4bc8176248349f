"""What was left out of the image is missed by no library of operations: decision forests, with ydf-tf from here.

It lies where FLAVOUR=forests installs it: that lock differs by this package from FLAVOUR=serve.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.image.container import START_S, Container, eventually, running
from tests.live.test_decision_forests import KINDS, MODELS

_PACKAGES = "/venv/lib/python3.11/site-packages"


def _mounted(package: str) -> Iterator[str]:
    """The options of Docker that put an installed package into the image's environment."""
    for folder in sorted({str(file.parts[0]) for file in distribution(package).files or () if len(file.parts) > 1}):
        yield from ("-v", f"{Path(str(distribution(package).locate_file(folder)))}:{_PACKAGES}/{folder}:ro")


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    with running("-v", f"{MODELS}:/models:ro", "-e", "FERRY_DRAIN_GRACE_S=0", *_mounted("ydf-tf")) as container:
        eventually(container.is_ready, START_S)
        yield container


@pytest.mark.parametrize("kind", KINDS)
def test_a_decision_forest_answers(container: Container, kind: str) -> None:
    lines = [json.loads(line) for line in (MODELS / kind / "answers.jsonl").read_text().splitlines()]
    status, body = container.ask("POST", f"/v1/models/{kind}:predict", {"instances": [line["row"] for line in lines]})
    assert status == 200, body
    np.testing.assert_allclose(json.loads(body)["predictions"], [line["answer"] for line in lines], rtol=0, atol=1e-6)
