"""With an access file nothing but whether the server lives and is ready is answered without a valid credential.

The routes are walked from the server's own tables, so a new one is covered as soon as it is there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from starlette.routing import Route

from app.codecs.protobuf.messages import message_class, service_descriptor
from app.protocols.open_inference import routes as v2
from app.protocols.tensorflow_serving import routes as v1
from tests.access.jwks import AUDIENCE, ISSUER, OTHER_RSA, RSA, key_set, public, token
from tests.every_protocol.live import Live, live
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place
from tests.support.waiting import HANG_S, until

__all__ = ["runtime_in_place"]  # a fixture

#: For tests alone: SHA-256 of these stands in the file.
KEY, OTHER, EXPIRED, WRONG = (
    "right-key-0123456789",
    "other-key-0123456789",
    "expired-key-012345678",
    "wrong-key-0123456789",
)
EVERYTHING = ["infer", "metadata", "administration", "metrics"]

ROWS = {"instances": [[1.0, 2.0]]}

#: What is answered without a credential.
OPEN_HTTP = {"/livez", "/readyz", "/v2/health/live", "/v2/health/ready"}
OPEN_GRPC = {
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
}


def key(name: str, secret: str, **more: Any) -> dict[str, Any]:
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return {"name": name, "sha256": digest, "models": ["*"], "permissions": EVERYTHING, **more}


KEYS = (
    key("everything", KEY),
    key("other", OTHER, models=["another"]),
    key("gone", EXPIRED, expires="2020-01-01T00:00:00Z"),
)


def access_file(folder: Path, *keys: Mapping[str, Any]) -> Path:
    """Beside the folder of models."""
    path = folder.parent / f"{folder.name}-access.json"
    path.write_text(json.dumps({"keys": keys or KEYS}))
    return path


def play(folder: Path, scenario: Callable[[Live], Awaitable[None]], *keys: Mapping[str, Any], **settings: Any) -> None:
    async def main() -> None:
        async with live(folder, access_file=str(access_file(folder, *keys)), **settings) as running:
            await scenario(running)

    asyncio.run(main())


# --- all routes ---


def _of_pattern(pattern: str) -> str:
    """A path that this regular expression of a route matches."""
    for group, value in (
        (r"(?P<model>[^/:]+)", "m"),
        (r"(?P<name>[^/]+)", "m"),
        (r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?", ""),
        (r"(?:/versions/(?P<version>[^/]+))?", ""),
        (r"(?:/v2/models|/v2/models/m)", "/v2/models/m"),
        (r"(?:/region/m)?", ""),
        (r"(?P<metadata>/metadata)?", ""),
        (r"(?::|%3A)", ":"),
    ):
        pattern = pattern.replace(group, value)
    return pattern.removesuffix("/?")


def http_routes(running: Live) -> set[tuple[str, str]]:
    """Method and path of every route of REST: of both protocols, and of FastAPI's pages."""
    found = {(action.method, _of_pattern(action.path.pattern)) for action in v2.Action}
    before, _, actions = v1._CALL.pattern.removesuffix(")").partition("(?P<action>")
    found |= {("POST", _of_pattern(before) + action) for action in actions.split("|")}
    found |= {("GET", "/v1/models"), ("GET", _of_pattern(v1._READ.pattern)), ("GET", "/v1/models/m/metadata")}
    found |= {
        ("POST", "/predict"),
        ("GET", "/nowhere"),
        ("POST", "/v1/nowhere"),
        ("GET", "/v2/nowhere"),
        ("GET", "/v2/models/stats"),
    }
    for route in _pages(running.app.routes):
        path = route.path.replace("{model}", "m")
        found |= {(method, path) for method in route.methods or ()}
    paths = {path for _, path in found}
    assert not any(set("()[]?{}") & set(path) for path in paths), paths
    return found | {("OPTIONS", path) for path in paths}


def _pages(routes: Sequence[Any]) -> Iterator[Route]:
    """FastAPI's, also those of routers that it includes."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from _pages(included.routes)
        else:
            assert isinstance(route, Route), route
            yield route


def grpc_methods(running: Live) -> dict[str, tuple[bool, type[Any]]]:
    """By path: whether it takes a stream, and its request message."""
    found: dict[str, tuple[bool, type[Any]]] = {}
    for service in running.services:
        name = service.name
        described = service_descriptor(name).methods_by_name
        for path in service.methods:
            method = described[path.rpartition("/")[2]]
            found[path] = method.client_streaming, message_class(method.input_type.full_name)
    found["/grpc.health.v1.Health/Check"] = False, health_pb2.HealthCheckRequest
    found["/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"] = (
        True,
        reflection_pb2.ServerReflectionRequest,
    )
    return found


async def grpc_failure(
    running: Live, path: str, streams: bool, message: Any, metadata: Sequence[tuple[str, str]] = ()
) -> tuple[grpc.StatusCode, str]:
    """How a call ends. `message`: None for a stream that nothing is sent on: grpc.aio's clients cannot write where it
    has ended already.
    """
    content = b"" if message is None else message.SerializeToString()
    try:
        if streams:

            async def requests() -> Any:
                if message is None:
                    await asyncio.Event().wait()
                yield content

            async for _ in running.channel.stream_stream(path)(requests(), metadata=metadata):
                break
        else:
            await running.channel.unary_unary(path)(content, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


#: How a request without a valid credential may look.
INVALID: tuple[dict[str, str], ...] = (
    {},
    bearer(WRONG),
    {"x-api-key": WRONG},
    bearer(EXPIRED),
    {"authorization": f"Basic {KEY}"},
    {"authorization": "Bearer"},
    {"authorization": f"Bearer {KEY}", "x-api-key": WRONG},
)


def test_the_description_of_the_api_tells_what_needs_a_credential(tmp_path: Path) -> None:
    async def scenario(running: Live) -> None:
        document = (await running.http.get("/openapi.json", headers=bearer(KEY))).json()
        methods = [(path, operation) for path, each in document["paths"].items() for operation in each.values()]
        assert {path for path, operation in methods if operation.get("security") == []} == OPEN_HTTP
        assert all("401" in operation["responses"] for path, operation in methods if path not in OPEN_HTTP)

    play(tmp_path, scenario)


@in_every_arrangement
def test_no_route_of_rest_answers_without_a_valid_credential(tmp_path: Path, frontends: int) -> None:
    async def scenario(running: Live) -> None:
        routes = http_routes(running)
        assert len(routes) > 50
        for client in (running.http, running.http2):
            for method, path in sorted(routes):
                for headers in INVALID:
                    reply = await client.request(
                        method, path, headers=headers, content=b"{}" if method == "POST" else b""
                    )
                    if path in OPEN_HTTP and method in {"GET", "HEAD"}:
                        assert reply.status_code == 200, path
                        continue
                    assert reply.status_code == 401, (method, path, headers, reply.text)
                    assert reply.headers["www-authenticate"].startswith("Bearer")
                    assert ("error=" in reply.headers["www-authenticate"]) == bool(headers)
                    if method != "HEAD":
                        assert set(reply.json()) == {"error"}
                    assert not any(secret in str(reply.headers) + reply.text for secret in (KEY, WRONG, EXPIRED))

    play(tmp_path, scenario, frontends=frontends)


@in_every_arrangement
def test_no_method_of_grpc_answers_without_a_valid_credential(tmp_path: Path, frontends: int) -> None:
    async def scenario(running: Live) -> None:
        methods = grpc_methods(running)
        assert len(methods) > 25
        for path, (streams, message) in methods.items():
            for headers in INVALID:
                sent = None if streams else message()
                code, text = await grpc_failure(running, path, streams, sent, list(headers.items()))
                if path in OPEN_GRPC:
                    assert code is grpc.StatusCode.OK, path
                    continue
                assert code is grpc.StatusCode.UNAUTHENTICATED, (path, headers, text)
                assert not any(secret in text for secret in (KEY, WRONG, EXPIRED))

    play(tmp_path, scenario, frontends=frontends)


@in_every_arrangement
def test_a_key_for_another_model_reaches_no_route_of_this_one(tmp_path: Path, frontends: int) -> None:
    """403 wherever the model, or all models, are named; lists are empty of it."""
    answered = {"/", "/v1/models", "/v2", "/v2/models/stats", "/v2/repository/index", "/metrics", "/health"}

    async def scenario(running: Live) -> None:
        for method, path in sorted(http_routes(running)):
            if path in OPEN_HTTP or method == "OPTIONS" or "sharedmemory" in path:
                continue
            reply = await running.http.request(method, path, headers=bearer(OTHER), json=ROWS)
            if path not in answered:
                assert reply.status_code == 403, (method, path, reply.text)
                assert method == "HEAD" or "other" in reply.json()["error"]
                continue
            assert reply.status_code == 200, (method, path, reply.text)
            if path not in {"/metrics", "/health"}:
                assert '"m"' not in reply.text

    play(tmp_path, scenario, frontends=frontends)


def _encoded(path: str) -> str:
    """With all encoded that routes have, but what ends a segment."""
    return "/".join("".join(f"%{ord(letter):02x}" for letter in segment) for segment in path.split("/"))


@in_every_arrangement
def test_a_path_that_is_encoded_needs_what_it_needs_as_it_is(tmp_path: Path, frontends: int) -> None:
    async def scenario(running: Live) -> None:
        calls = [("POST", PREDICT_PATH, ROWS), ("POST", "/predict", ROWS), ("POST", INFER_PATH, INFER)]
        pages = [(method, path, None) for method, path in sorted(http_routes(running)) if method == "GET"]
        for client in (running.http, running.http2):
            for method, path, body in calls + pages:
                for headers in ({}, bearer(OTHER), bearer(KEY)):
                    told = [
                        (await client.request(method, each, headers=headers, json=body)).status_code
                        for each in (path, _encoded(path))
                    ]
                    assert told[0] == told[1], (method, path, headers, told)
                    assert body is None or told[0] == (200 if headers == bearer(KEY) else 403 if headers else 401)

    play(tmp_path, scenario, frontends=frontends)


#: The fields of messages that name a model, and those methods that concern no single one.
def _named(kind: type[Any], model: str) -> Any:
    message = kind()
    fields = kind.DESCRIPTOR.fields_by_name
    if "model_spec" in fields:
        message.model_spec.name = model
        if "metadata_field" in fields:
            message.metadata_field.append("signature_def")
    elif "tasks" in fields:
        message.tasks.add().model_spec.name = model
    elif "model_name" in fields:
        message.model_name = model
    elif "name" in fields and "SharedMemory" not in kind.DESCRIPTOR.name:
        message.name = model
    return message


@in_every_arrangement
def test_a_key_for_another_model_reaches_it_by_no_method_of_grpc(tmp_path: Path, frontends: int) -> None:
    for_all = {"ServerMetadata", "RepositoryIndex", "ServerReflectionInfo"}
    key_of_other = [("authorization", f"Bearer {OTHER}")]

    async def scenario(running: Live) -> None:
        for path, (streams, kind) in grpc_methods(running).items():
            name = path.rpartition("/")[2]
            if path in OPEN_GRPC or "SharedMemory" in name:
                continue
            code, text = await grpc_failure(running, path, streams, _named(kind, "m"), key_of_other)
            if name in for_all:
                assert code is grpc.StatusCode.OK, path
            elif name == "ModelStreamInfer":  # its errors are replies
                assert (
                    await _stream_error(running, path, _named(kind, "m"), key_of_other) == "other may not use model 'm'"
                )
            else:
                assert code is grpc.StatusCode.PERMISSION_DENIED, (path, text)
                assert "other" in text

    audit = tmp_path.parent / f"{tmp_path.name}-audit.jsonl"
    play(tmp_path, scenario, frontends=frontends, audit_log=str(audit))
    denied = [line for each in audit.read_text().splitlines() if "path" in (line := json.loads(each))]
    assert any(line["path"].endswith("/ModelStreamInfer") for line in denied)
    assert all("127.0.0.1" in line.get("client", "") for line in denied)


async def _stream_error(running: Live, path: str, message: Any, metadata: Any) -> str:
    async def requests() -> Any:
        yield message.SerializeToString()

    async for content in running.channel.stream_stream(path)(requests(), metadata=metadata):
        return str(message_class("inference.ModelStreamInferResponse").FromString(content).error_message)
    return ""


# --- what is allowed ---

INFER = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}
INFER_PATH = "/v2/models/m/infer"
PREDICT_PATH = "/v1/models/m:predict"
MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"


def infer_message() -> Any:
    message = message_class("inference.ModelInferRequest")(model_name="m")
    message.inputs.add(name="features", datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend([1.0, 2.0])
    return message


@in_every_arrangement
def test_a_valid_key_is_answered_on_every_way(tmp_path: Path, frontends: int) -> None:
    """HTTP/1.1 by its fast path and by ASGI, HTTP/2, gRPC; with either field."""

    async def scenario(running: Live) -> None:
        for headers in (bearer(KEY), {"x-api-key": KEY}):
            for client in (running.http, running.http2):
                for _ in range(3):  # the head is known then
                    assert (await client.post(PREDICT_PATH, json=ROWS, headers=headers)).status_code == 200
                assert (await client.post("/predict", json=ROWS, headers=headers)).status_code == 200
                assert (await client.post(INFER_PATH, json=INFER, headers=headers)).status_code == 200
                stream = await client.post("/v1/models/m:predictStream", content=b"[1, 2]\n", headers=headers)
                assert stream.status_code == 200
                assert "error" not in stream.text
                for path in ("/metrics", "/health", "/openapi.json", "/v1/models", "/v1/models/m/batching"):
                    assert (await client.get(path, headers=headers)).status_code == 200, path
            for _ in range(3):
                code, text = await grpc_failure(running, MODEL_INFER, False, infer_message(), list(headers.items()))
                assert code is grpc.StatusCode.OK, text
        unloaded = await running.http.post("/v2/repository/models/m/unload", headers=bearer(KEY))
        assert unloaded.status_code == 200

    play(tmp_path, scenario, frontends=frontends)


@pytest.mark.parametrize("permission", EVERYTHING)
def test_a_permission_allows_what_it_names_and_nothing_else(tmp_path: Path, permission: str) -> None:
    needs = {
        "infer": ("POST", PREDICT_PATH),
        "metadata": ("GET", "/v1/models/m"),
        "administration": ("POST", "/v2/repository/models/m/load"),
        "metrics": ("GET", "/metrics"),
    }

    async def scenario(running: Live) -> None:
        for name, (method, path) in needs.items():
            reply = await running.http.request(
                method, path, headers=bearer(KEY), json=ROWS if name == "infer" else None
            )
            assert reply.status_code == (200 if name == permission else 403), (path, reply.text)
            if name != permission:
                assert reply.json() == {"error": f"one has no permission {name}, only {permission}"}

    play(tmp_path, scenario, key("one", KEY, permissions=[permission]))


@in_every_arrangement
def test_the_default_model_is_checked_by_its_name(tmp_path: Path, frontends: int) -> None:
    async def scenario(running: Live) -> None:
        for _ in range(2):
            reply = await running.http.post("/predict", json=ROWS, headers=bearer(KEY))
            assert (reply.status_code, reply.json()["error"]) == (403, "one may not use model 'm'")

    play(tmp_path, scenario, key("one", KEY, models=["n"]), frontends=frontends)


def test_who_may_not_see_all_models_is_not_told_their_names_for_want_of_a_default_one(tmp_path: Path) -> None:
    version = tmp_path / "hidden" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()

    async def scenario(running: Live) -> None:
        told = {}
        for secret in (KEY, OTHER):
            reply = await running.http.post("/predict", json=ROWS, headers=bearer(secret))
            told[secret] = reply.status_code, reply.json()["error"]
        assert told[KEY] == (403, "one may not see what this shows of all models, only some of them")
        assert told[OTHER][0] == 400
        assert "hidden" in told[OTHER][1]

    play(tmp_path, scenario, key("one", KEY, models=["m"]), key("all", OTHER), default_model="")


@in_every_arrangement
def test_who_sends_too_much_is_told_when_to_send_again(tmp_path: Path, frontends: int) -> None:
    """All ways count together, whichever frontend they take."""

    async def scenario(running: Live) -> None:
        headers = bearer(KEY)
        assert (await running.http.post(PREDICT_PATH, json=ROWS, headers=headers)).status_code == 200
        assert (await running.http2.post(PREDICT_PATH, json=ROWS, headers=headers)).status_code == 200
        assert (await running.http.get("/v1/models/m", headers=headers)).status_code == 200
        metadata = list(headers.items())
        assert (await grpc_failure(running, MODEL_INFER, False, infer_message(), metadata))[0] is grpc.StatusCode.OK
        for client in (running.http, running.http2):
            for path in (PREDICT_PATH, INFER_PATH):
                late = await client.post(path, json=ROWS, headers=headers)
                assert late.status_code == 429, late.text
                assert 900 < int(late.headers["retry-after"]) <= 1000
                assert late.json() == {"error": "slow sends more than its 0.001 requests a second"}
        code, text = await grpc_failure(running, MODEL_INFER, False, infer_message(), metadata)
        assert (code, text) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED, "slow sends more than its 0.001 requests a second"
        )  # fmt: skip
        assert (await running.http.post(PREDICT_PATH, json=ROWS, headers=bearer(OTHER))).status_code == 200

    keys = key("slow", KEY, rate=0.001, burst=4), key("fast", OTHER)
    play(tmp_path, scenario, *keys, frontends=frontends)


def test_who_sends_too_much_on_one_connection_gets_each_reply_in_its_place(tmp_path: Path) -> None:
    """Requests that follow each other without a pause (RFC 9112, section 9.3.2)."""
    body = json.dumps(ROWS).encode()
    head = f"POST {PREDICT_PATH} HTTP/1.1\r\nHost: x\r\nx-api-key: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"

    async def scenario(running: Live) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.http.base_url.port)
        writer.write(6 * (head.encode() + body))
        statuses = []
        for _ in range(6):
            reply = await reader.readuntil(b"\r\n\r\n")
            statuses.append(reply.split()[1])
            await reader.readexactly(int(re.findall(rb"content-length: (\d+)", reply)[0]))
        assert statuses == [b"200", b"200", b"429", b"429", b"429", b"429"]
        writer.close()

    play(tmp_path, scenario, key("slow", KEY, rate=0.001, burst=2))


@in_every_arrangement
def test_a_file_that_changes_counts_at_once_and_one_that_is_bad_does_not(
    tmp_path: Path, frontends: int, caplog: pytest.LogCaptureFixture
) -> None:
    """On connections that are open, too: their heads are known."""

    async def scenario(running: Live) -> None:
        path = tmp_path.parent / f"{tmp_path.name}-access.json"

        async def asked(secret: str, status: int) -> None:
            """Every process has read the file once all of ten answers in a row are so."""
            async with asyncio.timeout(HANG_S):
                found = [0]
                while set(found) != {status}:
                    found = [
                        (await client.post(PREDICT_PATH, json=ROWS, headers=bearer(secret))).status_code
                        for client in 5 * (running.http, running.http2)
                    ]
                    await asyncio.sleep(0)

        await asked(KEY, 200)
        await asked(OTHER, 401)
        path.write_text(json.dumps({"keys": [key("b", OTHER)]}))
        await asked(KEY, 401)
        await asked(OTHER, 200)
        path.write_text('{"keys": [')
        await until(lambda: "it is not YAML" in caplog.text)
        await asked(OTHER, 200)
        page = (await running.http.get("/metrics", headers=bearer(OTHER))).text
        failed = 'ferry_credential_loads_total{result="failed",source="file"}'
        assert f"{failed} 0.0" not in page
        assert f"{failed} " in page
        assert f"{key('b', OTHER)['sha256']}" not in page + caplog.text

    play(tmp_path, scenario, key("a", KEY), frontends=frontends)


# --- what is told of it ---


@in_every_arrangement
def test_logs_and_metrics_name_callers_and_show_no_secret(
    tmp_path: Path, frontends: int, caplog: pytest.LogCaptureFixture
) -> None:
    audit = tmp_path.parent / f"{tmp_path.name}-audit.jsonl"
    path = "/inference.GRPCInferenceService/RepositoryModelUnload"
    caplog.set_level(logging.INFO)

    async def scenario(running: Live) -> None:
        for client in (running.http, running.http2):
            await client.post(PREDICT_PATH, json=ROWS, headers=bearer(KEY))
            await client.post(PREDICT_PATH, json=ROWS, headers=bearer(WRONG))
            await client.post(PREDICT_PATH, json=ROWS)
            await client.get("/metrics", headers=bearer(OTHER))
            await client.get("/v1/models/m/metadata", headers=bearer(EXPIRED))
            await client.get("/v1/models/m/metadata", headers=bearer(OTHER))
        await running.http.post("/v2/repository/models/m/load", headers=bearer(OTHER))
        await running.http.patch("/v1/models/m/batching", json={"max_batch_size": 2}, headers=bearer(KEY))
        await running.http.post("/v2/repository/models/nope/load", headers=bearer(KEY))
        unload = _named(message_class("inference.RepositoryModelUnloadRequest"), "m")
        await grpc_failure(running, MODEL_INFER, False, infer_message(), [("x-api-key", WRONG)])
        await grpc_failure(running, MODEL_INFER, False, infer_message(), [("x-api-key", KEY)])
        await grpc_failure(running, MODEL_INFER, False, infer_message(), [("x-api-key", OTHER)])
        await grpc_failure(running, path, False, unload, [("x-api-key", WRONG)])
        await grpc_failure(running, path, False, unload, [("x-api-key", KEY)])
        await grpc_failure(running, MODEL_INFER, False, infer_message(), [("x-api-key", EXPIRED)])
        page = (await running.http.get("/metrics", headers=bearer(KEY))).text
        assert 'ferry_denied_requests_total{reason="unknown"} 4.0' in page
        assert 'ferry_denied_requests_total{reason="missing"} 2.0' in page
        assert 'ferry_denied_requests_total{reason="expired"} 3.0' in page
        health = (await running.http.get("/health", headers=bearer(KEY))).text
        for text in (page, health, caplog.text, audit.read_text()):
            assert not any(secret in text for secret in (KEY, WRONG, OTHER, EXPIRED))
            assert not any(each["sha256"] in text for each in KEYS)

    play(tmp_path, scenario, frontends=frontends, access_log=1.0, audit_log=str(audit))

    access = [vars(record) for record in caplog.records if record.name == "ferry.access"]
    told = {(each["path"], each["status"], each["caller"]) for each in access}
    assert {(PREDICT_PATH, "200", "everything"), (PREDICT_PATH, "401", ""), ("/metrics", "200", "other")} <= told
    assert {(MODEL_INFER, "OK", "everything"), (MODEL_INFER, "UNAUTHENTICATED", "")} <= told
    assert {("/v1/models/m/metadata", "401", "gone"), (MODEL_INFER, "UNAUTHENTICATED", "gone")} <= told

    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    administered = [
        (each["caller"], each["path"], each["outcome"]) for each in lines if each["action"] == "administration"
    ]
    assert list(dict.fromkeys(administered)) == [  # frontends in one process write each line once each
        ("other", "POST /v2/repository/models/m/load", "403"),
        ("everything", "PATCH /v1/models/m/batching", "200"),
        ("everything", "POST /v2/repository/models/nope/load", "404"),
        ("everything", "gRPC /inference.GRPCInferenceService/RepositoryModelUnload m", "OK"),
    ]
    denied = [each for each in lines if each["action"] == "request"]
    assert {(each["outcome"], each.get("caller")) for each in denied} == {
        ("unknown", None), ("missing", None), ("expired", "gone"), ("not_allowed", "other")
    }  # fmt: skip
    assert f"gRPC {MODEL_INFER}" in {each["path"] for each in denied if each["outcome"] == "not_allowed"}
    assert f"gRPC {path}" in {each["path"] for each in denied if each["outcome"] == "unknown"}
    assert all("127.0.0.1" in each["client"] for each in denied)


@in_every_arrangement
def test_a_caller_waits_in_the_queue_by_the_name_of_its_key(tmp_path: Path, frontends: int) -> None:
    async def scenario(running: Live) -> None:
        batcher = running.server.engine.batcher
        assert batcher is not None
        async with running.held():
            asked = [
                asyncio.create_task(running.http.post(PREDICT_PATH, json=ROWS, headers=bearer(secret)))
                for secret in (KEY, OTHER)
            ]
            await running.rows_wait(2)
            assert batcher.queue.callers is not None
            waiting = {name: each.weight for name, each in batcher.queue.callers._known.items() if each.lanes}
            assert waiting == {"heavy": 4.0, "light": 1.0}
        assert [(await each).status_code for each in asked] == [200, 200]

    play(tmp_path, scenario, key("heavy", KEY, weight=4), key("light", OTHER), frontends=frontends, fair_callers="key")


def test_a_token_is_a_credential_like_a_key(tmp_path: Path) -> None:
    keys = tmp_path.parent / f"{tmp_path.name}-jwks.json"
    keys.write_bytes(key_set(public(RSA, "k1")))
    groups = [{"value": "ml", "models": ["m"], "permissions": ["infer"], "weight": 2}]
    issuer = {
        "issuer": ISSUER, "audience": AUDIENCE, "jwks": str(keys), "algorithms": ["RS256"], "claim": "groups",
        "groups": groups,
    }  # fmt: skip
    path = access_file(tmp_path)
    path.write_text(json.dumps({"issuers": [issuer]}))

    async def main() -> None:
        async with live(tmp_path, access_file=str(path)) as running:
            valid, forged = bearer(token().decode()), bearer(token(OTHER_RSA).decode())

            async def asked(headers: dict[str, str]) -> int:
                return (await running.http.post(PREDICT_PATH, json=ROWS, headers=headers)).status_code

            control = running.server._access_control
            assert control is not None
            await until(lambda: all(each.known for each in control._key_sets.values()))
            for _ in range(2):
                assert await asked(valid) == 200
                assert await asked(forged) == 401
            code, text = await grpc_failure(running, MODEL_INFER, False, infer_message(), list(valid.items()))
            assert code is grpc.StatusCode.OK, text
            reply = await running.http.get("/v1/models/m", headers=valid)
            assert reply.json() == {"error": "token:me has no permission metadata, only infer"}
            reply = await running.http.post(PREDICT_PATH, json=ROWS, headers=bearer(token(groups=[]).decode()))
            assert (reply.status_code, reply.json()) == (
                403, {"error": "token:me is in no group that has rights here"}
            )  # fmt: skip

    asyncio.run(main())
