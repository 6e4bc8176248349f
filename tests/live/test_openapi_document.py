"""The OpenAPI document is true: its examples work, and replies are what it says, for right requests and wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from tests.support.described_server import described_server
from tests.support.openapi_calls import SHIPPED, Call, calls, operations, succeeds
from tests.support.processes import ARRANGEMENTS, ServerProcess

#: With frontends shared memory is always rejected.
_VARIABLES = {0: {"FERRY_ALLOW_SHARED_MEMORY": "true"}, 2: {"FERRY_FRONTENDS": "2"}}


@pytest.fixture(scope="module", params=ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with described_server(tmp_path_factory.mktemp("described"), **_VARIABLES[request.param]) as server:
        server.wait_for_frontends(request.param)
        yield server


@pytest.fixture(scope="module")
def document(server: ServerProcess) -> dict[str, Any]:
    found: dict[str, Any] = server.client.get("/openapi.json").json()
    return found


def fits(document: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    """Raises ValidationError."""
    whole = {**schema, "components": document["components"]}
    jsonschema.validate(value, whole, jsonschema.Draft202012Validator)


def send(server: ServerProcess, call: Call) -> httpx.Response:
    content: dict[str, Any] = {}
    if isinstance(call.body, str):
        content = {"content": call.body, "headers": {"Content-Type": "application/octet-stream"}}
    elif call.body is not None:
        content = {"json": call.body}
    return server.client.request(call.method, call.url, params=call.query, **content)


def check_reply(document: dict[str, Any], operation: dict[str, Any], reply: httpx.Response) -> None:
    """The status, the type and the schema are among those that the operation tells."""
    responses = operation["responses"]
    told = responses.get(str(reply.status_code)) or responses["default"]
    told = document["components"]["responses"][told["$ref"].rpartition("/")[2]] if "$ref" in told else told
    kind = reply.headers["content-type"].partition(";")[0]
    assert kind in told["content"], (operation["operationId"], reply.status_code, kind)
    for name in told.get("headers", {}):
        assert name in reply.headers, (operation["operationId"], name)
    if kind == "application/json":
        fits(document, told["content"][kind]["schema"], reply.json())


def test_every_operation_succeeds_and_answers_as_it_says(server: ServerProcess, document: dict[str, Any]) -> None:
    by_name = {operation["operationId"]: operation for _, _, operation in operations(document)}
    off = "system" if "system_shared_memory" not in server.client.get("/v2").json()["extensions"] else "none"
    for call in calls(document):
        operation, reply = by_name[call.operation], send(server, call)
        good = succeeds(operation) and not call.operation.startswith(off)
        assert (reply.status_code == 200) is good, (call.operation, reply.text)
        check_reply(document, operation, reply)


def test_every_example_and_every_body_of_a_call_fits_the_schema_of_its_operation(document: dict[str, Any]) -> None:
    by_name = {operation["operationId"]: operation for _, _, operation in operations(document)}
    for call in calls(document):
        if isinstance(call.body, dict):
            content = by_name[call.operation]["requestBody"]["content"]["application/json"]
            fits(document, content["schema"], call.body)
            for example in content.get("examples", {}).values():
                fits(document, content["schema"], example["value"])


def test_every_example_of_every_signature_works(server: ServerProcess, document: dict[str, Any]) -> None:
    tried = 0
    for path, method, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for example in content.get("examples", {}).values():
            reply = server.client.request(method, path, json=example["value"])
            assert reply.status_code == 200, (operation["operationId"], example, reply.text)
            tried += 1
    assert tried >= 2 * len(SHIPPED)


_WRONG = [
    ("POST", "/v1/models/{model}:predict", b"{"),
    ("POST", "/v1/models/{model}:classify", b'{"examples": []}'),
    ("POST", "/v1/models/{model}/versions/{version}:predict", b'{"instances": [1]}'),
    ("POST", "/v2/models/{model}/infer", b"{}"),
    ("POST", "/v2/repository/models/{model}/load", b'{"parameters": {"nothing": 1}}'),
    ("PATCH", "/v1/models/{model}/batching", b"[]"),
]


@pytest.mark.parametrize("model", ["digits", "nobody"])
def test_wrong_requests_get_the_errors_that_the_document_tells(
    server: ServerProcess, document: dict[str, Any], model: str
) -> None:
    for method, path, body in _WRONG:
        reply = server.client.request(method, path.format(model=model, version=7), content=body)
        operation = document["paths"][path][method.lower()]
        assert reply.status_code in {400, 403, 404}
        assert str(reply.status_code) in operation["responses"]
        check_reply(document, operation, reply)


@pytest.mark.parametrize("media_type", ["application/x-npy", "application/x-npz", "application/x-msgpack", "image/png"])
def test_every_type_that_is_told_is_read_or_answered(
    server: ServerProcess, document: dict[str, Any], media_type: str
) -> None:
    operation = document["paths"]["/v1/models/digits:predict"]["post"]
    assert media_type in operation["x-request-types"]
    reply = server.client.post("/v1/models/digits:predict", content=b"none", headers={"Content-Type": media_type})
    assert reply.status_code == 400, "read, and found wrong"
    call = next(each for each in calls(document) if each.operation == "predict digits")
    reply = server.client.post(call.url, json=call.body, headers={"Accept": media_type})
    told = media_type in operation["responses"]["200"]["content"]
    assert (reply.status_code, reply.headers["content-type"] == media_type) == ((200, True) if told else (406, False))
