"""Models with TensorFlow Text in their graphs: the library is found and loaded, and requests share calls rightly.

The oracle is the direct call of each model for each text by itself, in another process (text_models.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.forks.programs import run_program
from tests.support.processes import ServerProcess, serving

MODELS = ["bert", "bert_tokens", "fast_bert", "sentencepiece", "sentencepiece_tokens", "ngrams", "packed"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text") / "models"
    made = run_program("-m", "tests.support.models.text_models", str(folder))
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[ServerProcess]:
    with serving(models, models.parent / "log", max_batch_size=8) as running:
        yield running


def _asked(models: Path, name: str) -> tuple[list[str], list[Any]]:
    made = json.loads(models.with_suffix(".json").read_text())
    return made["texts"], made["answers"][name]


def _predict(server: ServerProcess, name: str, texts: list[str]) -> list[Any]:
    reply = server.client.post(f"/v1/models/{name}:predict", json={"instances": texts})
    assert reply.status_code == 200, reply.text
    answers: list[Any] = reply.json()["predictions"]
    return answers


def _check_equal(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_direct_calls_alone_and_in_company(server: ServerProcess, models: Path, name: str) -> None:
    texts, wanted = _asked(models, name)
    _check_equal([_predict(server, name, [text])[0] for text in texts], wanted)
    parts = [(begin, begin + size) for size in (1, 2, 3, 5) for begin in range(len(texts) - size + 1)]
    with ThreadPoolExecutor(8) as callers:
        together = list(callers.map(lambda part: _predict(server, name, texts[slice(*part)]), parts))
    for part, answers in zip(parts, together, strict=True):
        _check_equal(answers, wanted[slice(*part)])


@pytest.mark.parametrize("name", MODELS)
def test_requests_share_calls_by_the_graph(server: ServerProcess, name: str) -> None:
    (version,) = server.client.get(f"/v1/models/{name}/batching").json()["versions"]
    (signature,) = version["signatures"]
    assert (signature["batched"], signature["alone"], signature["proof"]) == (True, "", "graph")


def test_the_library_is_loaded_once_and_the_log_says_so(server: ServerProcess) -> None:
    lines = [line for line in server.log.read_text().splitlines() if "tensorflow-text" in line]
    assert len(lines) == 1
    assert "was loaded in" in lines[0]
