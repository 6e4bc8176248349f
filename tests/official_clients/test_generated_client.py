"""A client that openapi-python-client generates from the document calls every operation with success."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.official_clients.environment import CLIENTS, ask, require
from tests.support.described_server import described_server
from tests.support.openapi_calls import calls, operations, succeeds
from tests.support.processes import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    require(CLIENTS)
    with described_server(tmp_path_factory.mktemp("described"), FERRY_ALLOW_SHARED_MEMORY="true") as server:
        yield server


def test_a_generated_client_calls_every_operation_with_success(server: ServerProcess, tmp_path: Path) -> None:
    document = server.client.get("/openapi.json").json()
    question = {"url": server.url, "folder": str(tmp_path), "document": document}
    asked = [asdict(call) for call in calls(document)]
    found = ask("generated_client", {**question, "calls": asked}, tmp_path)["every_operation"]
    lines = found["said"].splitlines()
    assert len(lines) == 1, found["said"][:2000]
    assert lines[0].startswith("Generating"), "and no warnings"
    answers: dict[str, Any] = found["answers"]
    assert answers.keys() == {operation["operationId"] for _, _, operation in operations(document)}
    for _, _, operation in operations(document):
        answer = answers[operation["operationId"]]
        assert "raised" not in answer, (operation["operationId"], answer["raised"])
        if succeeds(operation):
            assert answer["status"] == 200, (operation["operationId"], answer)
            assert answer["parsed"] not in {"Error", "NoneType"}, (operation["operationId"], answer)
        else:
            assert answer["parsed"] == "Error", (operation["operationId"], answer)
