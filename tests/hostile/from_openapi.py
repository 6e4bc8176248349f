"""Requests that the OpenAPI document suggests and, more of them, that it forbids: schemathesis makes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from tests.hostile.wire_requests import HttpRequest

_BASE = "http://server"


def openapi_requests(document: dict[str, Any], count: int, with_seed: int) -> list[HttpRequest]:
    """About `count` requests, over all operations that take a body, a third of them as it says; one for the others."""
    operations = [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]
    share = count // sum(bool(operation.body) for operation in operations)
    requests: list[HttpRequest] = []
    for operation in operations:
        requests += _cases(operation, GenerationMode.POSITIVE, share // 3 if operation.body else 1, with_seed)
        if operation.body:
            requests += _cases(operation, GenerationMode.NEGATIVE, share - share // 3, with_seed)
    return requests


def _cases(operation: Any, mode: GenerationMode, count: int, with_seed: int) -> Iterator[HttpRequest]:
    for case in made_cases(operation, mode, count, with_seed):
        request = _request(case)
        if request is not None:
            yield request


def made_cases(operation: Any, mode: GenerationMode, count: int, with_seed: int) -> list[Any]:
    """At most `count` cases of schemathesis for the operation; the same for the same seed."""
    cases: list[Any] = []

    @seed(with_seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        cases.append(case)

    try:
        collect()
    except Unsatisfiable:  # nothing about this operation can be wrong
        return []
    return cases


def _request(case: Any) -> HttpRequest | None:
    """None for bodies of a form that schemathesis cannot write; there are mutations of them elsewhere."""
    try:
        sent = case.as_transport_kwargs(base_url=_BASE)
    except schemathesis.errors.SerializationNotPossible:
        return None
    headers = {
        str(name): str(value) for name, value in sent["headers"].items() if not name.startswith("X-Schemathesis")
    }
    headers.pop("Connection", None)
    body = sent.get("data", b"")
    if "json" in sent:
        body = json.dumps(sent["json"]).encode()
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, bytes):
        return None
    query = urlencode(sent["params"] or {}, doseq=True, errors="replace")
    path = sent["url"].removeprefix(_BASE) + (f"?{query}" if query else "")
    return HttpRequest("OpenAPI", sent["method"], path, headers, body)
