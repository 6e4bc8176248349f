"""Real decision forests, of TensorFlow Decision Forests and of YDF, by the library that they ask for (ydf-tf).

The answers were made by the libraries themselves (decision_forests/make.py): those of TensorFlow Decision Forests with
TensorFlow 2.19, whatever runs here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.processes import ServerProcess, serving

MODELS = Path(__file__).parent / "decision_forests"
KINDS = ["tfdf", "ydf"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("forests") / "log"
    with serving(MODELS, log, max_batch_size=16, strict_shapes=False) as running:
        yield running


def _asked(kind: str) -> tuple[list[Any], list[Any]]:
    lines = [json.loads(line) for line in (MODELS / kind / "answers.jsonl").read_text().splitlines()]
    return [line["row"] for line in lines], [line["answer"] for line in lines]


def _predict(server: ServerProcess, kind: str, rows: list[Any]) -> Any:
    body = json.dumps({"instances": rows})  # httpx refuses NaN, which stands for a missing value
    reply = server.client.post(f"/v1/models/{kind}:predict", content=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["predictions"]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_library_alone_and_in_company(server: ServerProcess, kind: str) -> None:
    rows, wanted = _asked(kind)
    alone = [_predict(server, kind, [row])[0] for row in rows]
    with ThreadPoolExecutor(8) as callers:
        sizes = [1 + n % 5 for n in range(len(rows) - 5)]
        together = list(callers.map(lambda n: _predict(server, kind, rows[n : n + sizes[n]]), range(len(sizes))))
    np.testing.assert_allclose(alone, wanted, rtol=0, atol=1e-6)
    for n, answer in enumerate(together):
        np.testing.assert_allclose(answer, wanted[n : n + sizes[n]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_requests_share_calls_by_the_graph(server: ServerProcess, kind: str) -> None:
    (version,) = server.client.get(f"/v1/models/{kind}/batching").json()["versions"]
    (signature,) = version["signatures"]
    assert (signature["batched"], signature["alone"], signature["proof"]) == (True, "", "graph")


@pytest.mark.parametrize("kind", KINDS)
def test_features_of_another_rank_are_rejected(server: ServerProcess, kind: str) -> None:
    """The kernel would end the process."""
    rows, _ = _asked(kind)
    wrong = {name: [[value]] for name, value in rows[1].items()}
    reply = server.client.post(f"/v1/models/{kind}:predict", json={"inputs": wrong})
    assert reply.status_code == 400
    assert reply.json() == {"error": "Input 'age' has shape [1,1]; expected [?], or other sizes of this rank"}
    assert _predict(server, kind, rows[1:2])
