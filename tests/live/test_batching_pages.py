"""GET and PATCH /v1/models/{model}/batching as a client sees them, in one process and with frontends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from app import runtime
from app.batching.policy import BatchingOptions
from app.core.batching_explanation import BatchingExplanation, BatchingOptionsDocument
from tests.every_protocol.live import RUNTIME, Live, live

PAGE = "/v1/models/m/batching"
PREDICT = "/v1/models/m:predict"
ROW = {"instances": [[1.0, 2.0]]}

Scenario = Callable[[Live], Awaitable[None]]


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)


@pytest.fixture(params=[0, 2], ids=["one process", "frontends"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with live(tmp_path, frontends=request.param) as running:
                await scenario(running)

        asyncio.run(main())

    return run


def test_options_change_from_the_next_batch_on(play: Callable[[Scenario], None]) -> None:
    async def scenario(running: Live) -> None:
        http = running.http
        before = (await http.get(PAGE)).json()["options"]
        reply = await http.patch(PAGE, json={"max_batch_size": 2, "target_p99_ms": 50})
        assert (reply.status_code, reply.json()) == (200, {**before, "max_batch_size": 2, "target_p99_ms": 50})
        assert (await http.get(PAGE)).json()["options"] == reply.json()
        async with running.held():
            asked = [asyncio.ensure_future(http.post(PREDICT, json=ROW)) for _ in range(6)]
            await running.rows_wait(6)
        answers = await asyncio.gather(*asked)
        assert [answer.headers["server-timing"].rpartition(", ")[2] for answer in answers] == ['batch;desc="2"'] * 6
        reply = await http.patch(PAGE, json={"max_batch_size": 0})
        assert (reply.json()["max_batch_size"], reply.json()["target_p99_ms"]) == (0, 50)

    play(scenario)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"max_batch_size": 33}', "max_batch_size is 33, but should be at most 32, the largest batch that the model"),
        (b'{"max_batch_size": 1.5}', "max_batch_size is 1.5, but should be a whole number of rows"),
        (b'{"max_batch_size": 1000000000000000000000}', "max_batch_size is 1e+21, but should be a whole number"),
        (b'{"max_batch_size": 18446744073709551615}', "max_batch_size is 18446744073709551615, but should be at most"),
        (b'{"target_p99_ms": "50"}', "target_p99_ms is '50', but should be a number of milliseconds"),
        (b'{"max_batch_delay_ms": null}', "max_batch_delay_ms is None, but should be a number of milliseconds"),
        (
            b'{"max_batch_delay_ms": -1}',
            "max_batch_delay_ms is -1, but should be a number of milliseconds from 0 to 10000",
        ),
        (b'{"max_batch_delay_ms": 1e9}', "max_batch_delay_ms is 1000000000.0, but should be a number of milliseconds"),
        (b'{"target_p99_ms": 1e9}', "target_p99_ms is 1000000000.0, but should be a number of milliseconds from 0 to"),
        (b'{"max_delay": 1}', "max_delay is no batching option; there are max_batch_size, max_batch_delay_ms, "),
        (b'{"max_batch_size": 4, "max_delay": 1}', "max_delay is no batching option"),
        (b"{}", "The body must be an object with some of the batching options max_batch_size, "),
        (b"[1]", "The body must be an object with some of the batching options"),
        (b"", "The body is not JSON: "),
        (b"{", "The body is not JSON: "),
        (b'{"target_p99_ms": NaN}', "The body is not JSON: "),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(body: bytes, error: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as running:
            before = (await running.http.get(PAGE)).json()["options"]
            reply = await running.http.patch(PAGE, content=body)
            assert reply.status_code == 400
            assert list(reply.json()) == ["error"]
            assert reply.json()["error"].startswith(error)
            assert (await running.http.get(PAGE)).json()["options"] == before

    asyncio.run(main())


def test_rejections(play: Callable[[Scenario], None]) -> None:
    async def scenario(running: Live) -> None:
        http = running.http
        wrong = await http.patch(PAGE, json={"max_batch_size": 33})
        assert (wrong.status_code, wrong.json()["error"][:22]) == (400, "max_batch_size is 33, ")
        for name, status, text in (
            ("none", 404, "Servable not found for request: Latest(none)"),
            ("broken", 503, "Model broken version 1 failed to load"),
        ):
            for reply in (
                await http.get(f"/v1/models/{name}/batching"),
                await http.patch(f"/v1/models/{name}/batching", json={"max_batch_size": 1}),
            ):
                assert reply.status_code == status
                assert reply.json()["error"].startswith(text)
                assert ("retry-after" in reply.headers) == (status == 503)
        post = await http.post(PAGE, json={})
        assert (post.status_code, list(post.json())) == (405, ["error"])
        too_large = await http.patch(PAGE, content=b" " * ((1 << 16) + 1))
        assert too_large.status_code == 413
        for path, text in (
            ("/v1/models/batching", "Could not find any versions of model batching"),
            ("/v1/models/m/versions/1/batching", "Malformed request"),
            ("/v1/models/m:predict/batching", "Malformed request"),
        ):
            assert (await http.get(path)).json()["error"].startswith(text)

    play(scenario)


def test_batches_are_explained(play: Callable[[Scenario], None]) -> None:
    async def scenario(running: Live) -> None:
        for values in ([1.0], [2.0], [3.0, 4.0, 5.0]):
            await running.http.post(PREDICT, json={"instances": [[value, 0.0] for value in values]})
        await running.http.post(PREDICT, json={"instances": [[1.0, 0.0]]}, headers={"X-Request-Timeout-Ms": "1e-9"})
        document = (await running.http.get(PAGE)).json()
        explanation = BatchingExplanation(**document)
        assert json.loads(explanation.model_dump_json()) == document
        (version,) = explanation.versions
        assert version.version == 1
        found = {each.signature: each for each in version.signatures}
        default = found["serving_default"]
        assert (default.calls, default.rows) == (3, 5)
        assert default.answers == {"200": 3, "504": 1}
        assert sum(default.closed_by.values()) == 3
        assert default.costs
        assert found["pair"].calls == 0
        assert any("serving_default" in sentence for sentence in explanation.advice)

    play(scenario)


def test_what_was_answered_before_a_change_is_not_counted_after_it(play: Callable[[Scenario], None]) -> None:
    async def scenario(running: Live) -> None:
        for _ in range(3):
            await running.http.post(PREDICT, json=ROW)
        await running.http.patch(PAGE, json={"max_batch_size": 4})
        await running.http.post(PREDICT, json=ROW)
        explanation = BatchingExplanation(**(await running.http.get(PAGE)).json())
        found = explanation.versions[0].signatures[0]
        assert (found.signature, found.calls, found.answers) == ("serving_default", 1, {"200": 1})

    play(scenario)


def test_the_document_shows_both(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as running:
            document: Any = (await running.http.get("/openapi.json")).json()
            page = document["paths"]["/v1/models/{model}/batching"]
            assert set(page) == {"get", "patch"}
            schema = page["patch"]["requestBody"]["content"]["application/json"]["schema"]
            assert schema["additionalProperties"] is False
            assert "required" not in schema
            assert set(schema["properties"]) == {each.name for each in fields(BatchingOptions)}
            assert {"400", "404", "503"} <= set(page["patch"]["responses"])
            assert {"BatchingOptionsDocument", "BatchingExplanation", "CostCurveDocument"} <= set(
                document["components"]["schemas"]
            )

    asyncio.run(main())


def test_the_document_of_options_is_theirs() -> None:
    assert BatchingOptionsDocument(**BatchingOptions().as_dict()).model_dump() == BatchingOptions().as_dict()
    assert list(BatchingOptionsDocument.model_fields) == [each.name for each in fields(BatchingOptions)]
