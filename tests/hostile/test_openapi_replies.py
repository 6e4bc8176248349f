"""Whatever is sent, right or wrong: status, type and schema of the reply are among those that the document tells."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app import runtime
from tests.every_protocol.live import RUNTIME, live
from tests.hostile.from_openapi import made_cases
from tests.support.openapi_calls import operations
from tests.support.waiting import HANG_S

SEED, CASES = 20, 3

_CHECKS = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)


def test_replies_are_those_that_the_document_tells(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as served:
            document = json.loads(json.dumps(served.app.openapi()))
            for _, _, operation in operations(document):
                operation["responses"].pop("default", None)  # only what is told by its number
            statuses = await asyncio.to_thread(play, document, str(served.http.base_url))
        assert {200, 400, 404} <= set(statuses)

    asyncio.run(main())


def play(document: dict[str, Any], url: str) -> list[int]:
    """The statuses of all replies. Raises the first failed check."""
    statuses = []
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            for case in made_cases(found.ok(), mode, CASES, SEED):
                with suppress(schemathesis.errors.SerializationNotPossible):
                    reply = case.call(base_url=url, timeout=HANG_S)
                    case.validate_response(reply, checks=_CHECKS)
                    statuses.append(reply.status_code)
    return statuses
