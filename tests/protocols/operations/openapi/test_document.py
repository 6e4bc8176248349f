"""Every route is in the document, and what is in the document is a route; the document is valid."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from importlib import import_module
from typing import Any

import jsonschema
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from app.codecs.format_registry import BODY_FORMATS
from app.core.errors import ModelNotReady
from app.protocols.open_inference import routes as v2
from app.protocols.operations.batching_page import batching_routes
from app.protocols.operations.health import health_routes
from app.protocols.operations.openapi.document import add_access, add_protocols
from app.protocols.operations.openapi.parts import CAUSES
from app.protocols.tensorflow_serving import routes as v1
from app.transports.administration import Administration
from app.transports.http.head import TIMEOUT_HEADER
from app.transports.http.replies import CODES
from app.transports.rendered_pages import whole
from app.transports.request_priority import PRIORITY_HEADER
from tests.protocols.operations.openapi.test_model_bodies import CLASSIC, DIGITS
from tests.support.openapi_calls import operations
from tests.support.protocol_fakes import FakeModel, FakeRepository

VALUES = {"model": "digits", "version": 1, "label": "stable", "region": "r"}
METRICS = "/monitoring/prometheus/metrics"


def operators_routes() -> list[APIRouter]:
    server: Any = None
    return [health_routes(server, METRICS), batching_routes(server, Administration(allowed=True))]


def operators_paths() -> set[tuple[str, str]]:
    return {
        (method, route.path)
        for router in operators_routes()
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }


def document_of(model: FakeModel, **more: Any) -> dict[str, Any]:
    repository: Any = FakeRepository(model, **more)
    app = FastAPI()
    for router in operators_routes():
        app.include_router(router)
    return whole(add_protocols(app.openapi(), repository))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return document_of(FakeModel("digits", 3, {"serving_default": DIGITS, "classic": CLASSIC}, {}))


# --- routes ---


class _Endless(Exception):
    """The pattern stands for more texts than can be listed."""


def texts(pattern: Any) -> Iterator[str]:
    """All that a parsed regular expression matches, with {} for each named group of endless many."""
    return map("".join, itertools.product(*[_choices(str(kind), value) for kind, value in pattern]))


def _choices(kind: str, value: Any) -> list[str]:
    match kind:
        case "LITERAL":
            return [chr(value)]
        case "BRANCH":
            return [text for each in value[1] for text in texts(each)]
        case "MAX_REPEAT" if value[:2] == (0, 1):
            return ["", *texts(value[2])]
        case "SUBPATTERN":
            try:
                return list(texts(value[3]))
            except _Endless:
                return ["{}"]
    raise _Endless


def paths(pattern: str) -> set[str]:
    """Without other spellings of the same path: a slash behind it, and a colon as clients encode it."""
    found = {text.removesuffix("/") for text in texts(import_module("re._parser").parse(pattern))}
    return {re.sub("%3a", ":", text, flags=re.IGNORECASE) for text in found}


def protocol_routes() -> set[tuple[str, str]]:
    """Method and path of every route of the protocols, with {} for parameters."""
    found = {("POST", path) for path in {"/predict", *paths(v1._CALL.pattern)} if "%3A" not in path}  # twice the same
    found |= {("GET", path) for pattern in (v1._READ, v1._LIST) for path in paths(pattern.pattern)}
    for action in v2.Action:
        found |= {(action.method, path) for path in paths(action.path.pattern)}
    return found


def test_the_routes_are_all_found() -> None:
    assert {
        ("POST", "/v1/models/{}/labels/{}:predictStream"),
        ("GET", "/v1/models/{}/versions/{}/metadata"),
        ("POST", "/v2/models/{}/versions/{}/infer"),
        ("POST", "/v2/systemsharedmemory/unregister"),
    } <= protocol_routes()
    assert len(protocol_routes()) > 40


def test_every_route_is_in_the_document(document: dict[str, Any]) -> None:
    told = {(method.upper(), re.sub(r"{\w+}", "{}", path)) for path, method, _ in operations(document)}
    assert protocol_routes() - told == set()
    assert len(operators_paths()) >= 7
    assert operators_paths() - {(method.upper(), path) for path, method, _ in operations(document)} == set()


def test_every_operation_of_the_document_is_a_route(document: dict[str, Any]) -> None:
    for template, method, _ in operations(document):
        path = template.format(**VALUES)
        find = v2.find_route if path.startswith("/v2") else v1.find_route
        assert (method.upper(), template) in operators_paths() or find(method.upper(), path)


def test_parameters_of_a_path_are_told_and_no_others(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        told = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert told == set(re.findall(r"{(\w+)}", path)), (method, path)


# --- the document ---


def test_names_of_operations_are_unique_and_references_lead_somewhere(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document))):
        found = document
        for part in reference.split("/"):
            found = found[part]
        assert found


def test_every_schema_is_one(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for _, _, operation in operations(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            jsonschema.Draft202012Validator.check_schema(content["schema"])


def test_every_status_of_an_error_is_told_and_none_that_is_never_sent(document: dict[str, Any]) -> None:
    assert set(CODES.values()) == CAUSES.keys()
    sent = {status for _, _, operation in operations(document) for status in operation["responses"]}
    assert sent == {"200", "default", *map(str, CAUSES)} - {"401", "429"}, "without an access file"
    assert not {"HTTPValidationError", "ValidationError"} & document["components"]["schemas"].keys()


def test_where_credentials_are_needed_each_operation_tells_how_and_what_else_it_answers(
    document: dict[str, Any],
) -> None:
    document = add_access(deepcopy(document), lambda _, path: path == "/livez")
    assert {each for need in document["security"] for each in need} == set(document["components"]["securitySchemes"])
    for path, method, operation in operations(document):
        told = operation.get("security") != [], {"401", "403", "429"} <= set(operation["responses"])
        assert told == (2 * (path != "/livez",)), (method, path)


def test_calls_of_a_ready_model_stand_under_its_own_name(document: dict[str, Any]) -> None:
    own = {path for path, _, operation in operations(document) if operation["tags"] == ["digits"]}
    calls = ("predict", "predictStream", "classify", "regress")
    assert own == {*(f"/v1/models/digits:{call}" for call in calls), "/v2/models/digits/infer"}
    assert document["paths"]["/v1/models/{model}:predict"]["post"]["parameters"][0]["example"] == "digits"


def test_the_default_model_is_shown_on_the_short_path(document: dict[str, Any]) -> None:
    examples = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert list(examples) == ["serving_default"]


def test_models_that_are_not_ready_and_models_without_signatures_have_no_calls_of_their_own() -> None:
    for document in (
        document_of(FakeModel("digits", 3, {"serving_default": DIGITS}, {}), failure=ModelNotReady("loading")),
        document_of(FakeModel("digits", 3, {}, {})),
    ):
        assert not any("digits" in path for path in document["paths"])
        assert "/v1/models/{model}:predict" in document["paths"]


def test_a_name_with_odd_characters_is_encoded_in_its_path() -> None:
    document = document_of(FakeModel("a b{c}", 3, {"serving_default": DIGITS}, {}))
    assert "/v1/models/a%20b%7Bc%7D:predict" in document["paths"]


def test_headers_and_query_are_told(document: dict[str, Any]) -> None:
    both = {TIMEOUT_HEADER, PRIORITY_HEADER}
    for call, headers, query, timed in (
        ("predict", both, {"signature_name", "output"}, True),
        ("classify", both, set(), True),
        ("regress", both, set(), True),
        ("predictStream", {TIMEOUT_HEADER}, {"signature_name", "output"}, False),
    ):
        for path in (f"/v1/models/digits:{call}", f"/v1/models/{{model}}/versions/{{version}}:{call}"):
            operation = document["paths"][path]["post"]
            told = {
                place: {each["name"] for each in operation["parameters"] if each["in"] == place}
                for place in ("header", "query")
            }
            assert {name.lower().encode() for name in told["header"]} == headers
            assert told["query"] == query
            assert ("headers" in operation["responses"]["200"]) is timed


def test_pages_in_text_are_told_as_text(document: dict[str, Any]) -> None:
    for path in ("/metrics", METRICS):
        assert list(document["paths"][path]["get"]["responses"]["200"]["content"]) == ["text/plain"]
    assert list(document["paths"]["/v1/models/{model}:predictStream"]["post"]["responses"]["200"]["content"]) == [
        "application/x-ndjson",
        "application/octet-stream",
    ]


def test_bodies_have_the_types_that_generators_know_and_all_others_are_listed_beside_them(
    document: dict[str, Any],
) -> None:
    """openapi-python-client warned 63 times of other types, of two models."""
    for path, method, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        assert content.keys() <= {"application/json", "application/octet-stream"}, (method, path)
        listed = operation.get("x-request-types", list(content))
        assert content.keys() <= set(listed), (method, path)
        assert all(each in content or each in operation["description"] for each in listed), (method, path)
    every = {name for each in BODY_FORMATS for name in each.media_types}
    assert set(document["paths"]["/v1/models/{model}:predict"]["post"]["x-request-types"]) == every


def test_each_operation_has_a_summary_of_its_own_in_plain_words(document: dict[str, Any]) -> None:
    summaries = [
        (path.split("/")[1], call["summary"]) for path, calls in document["paths"].items() for call in calls.values()
    ]
    assert [each for n, each in enumerate(summaries) if each in summaries[:n]] == []
    words = {word for _, summary in summaries for word in summary.split()}
    assert "Predictstream" not in words
    assert not any(" of a model of " in summary for _, summary in summaries)
