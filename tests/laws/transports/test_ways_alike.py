"""Access, rates and limits are the same on every way to the server: HTTP/1.1, HTTP/2 and what is upgraded to it, on the
fast path and by ASGI, pages, gRPC's calls at once, by a handler and in streams; in one process and by a frontend.

- Each request counts once for its caller's rate, whatever way it takes: as many as the burst are let in, not one more.
- A key that is removed ends on all ways at once, on connections that are open and in streams that have begun.
- A request over HTTP/2 has the reply that it has over HTTP/1.1: status, header fields and content.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
from grpc_reflection.v1alpha import reflection_pb2

from app.access.access_file import AccessFile
from app.codecs.protobuf.messages import message_class
from tests.access.test_every_route import (
    INFER,
    INFER_PATH,
    MODEL_INFER,
    PREDICT_PATH,
    ROWS,
    access_file,
    bearer,
    infer_message,
    key,
)
from tests.every_protocol.live import Live, live
from tests.every_protocol.suite import in_every_arrangement, runtime_in_place
from tests.support.waiting import HANG_S

__all__ = ["runtime_in_place"]  # a fixture

BURST = 3
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
PAGES = ("/metrics", "/health", "/openapi.json", "/v1/models", "/v1/models/m/batching", "/v2/models/stats", "/v2")

#: One request with these header fields; says what becomes of it: 'ok', 'rate', 'gone'.
Way = Callable[[Live, dict[str, str]], Awaitable[str]]


def _of_http(reply: httpx.Response) -> str:
    return {401: "gone", 429: "rate", 200: "ok"}.get(reply.status_code, reply.text)


async def _http(
    client: str, asked: tuple[str, str, Any], more: dict[str, str], running: Live, headers: dict[str, str]
) -> str:
    method, path, document = asked
    reply = await getattr(running, client).request(method, path, headers=headers | more, json=document)
    return _of_http(reply)


async def _unary(path: str, message: Any, running: Live, headers: dict[str, str]) -> str:
    try:
        await running.channel.unary_unary(path)(message.SerializeToString(), metadata=list(headers.items()))
    except grpc.aio.AioRpcError as error:
        return _of_grpc(error)
    return "ok"


def _of_grpc(error: grpc.aio.AioRpcError) -> str:
    return _of_code(error.code(), error.details())


def _of_code(code: grpc.StatusCode, details: str | None) -> str:
    codes = {grpc.StatusCode.UNAUTHENTICATED: "gone", grpc.StatusCode.RESOURCE_EXHAUSTED: "rate"}
    return codes.get(code, str(details))


class GrpcStream:
    """A stream that goes on; each call of it sends a message."""

    def __init__(self, path: str, message: Any, reply: Any, running: Live, headers: dict[str, str]) -> None:
        self._begin = partial(running.channel.stream_stream(path), metadata=list(headers.items()))
        self._call = self._begin()
        self._content, self._reply = message.SerializeToString(), reply

    async def send(self) -> str:
        try:
            await self._call.write(self._content)
            content = await self._call.read()
            assert content is not grpc.aio.EOF
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.INTERNAL:
                return _of_grpc(error)
            again = self._begin()  # grpc.aio's client cannot write on a call that was rejected, nor tell why
            return _of_code(await again.code(), await again.details())
        text = str(getattr(self._reply.FromString(content), "error_message", ""))
        words = {"The credential is not valid here": "gone", "requests a second": "rate"}
        return next((told for word, told in words.items() if word in text), text or "ok")

    async def aclose(self) -> None:
        self._call.cancel()


class LineStream:
    """A :predictStream over HTTP/1.1 that goes on; each call of it sends a line."""

    def __init__(self, running: Live, headers: dict[str, str]) -> None:
        self._running, self._headers = running, headers

    async def open(self) -> None:
        port = self._running.http.base_url.port
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        fields = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        head = f"POST /v1/models/m:predictStream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{fields}\r\n"
        self._writer.write(head.encode())

    async def send(self) -> str:
        line = b"[1.0, 2.0]\n"
        self._writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        while b"{" not in (reply := await self._reader.readline()):
            assert reply
        document = json.loads(reply)
        if "prediction" in document:
            return "ok"
        return {"The credential is not valid here": "gone"}.get(document["error"], document["error"])

    async def aclose(self) -> None:
        self._writer.close()


def _infer_stream(running: Live, headers: dict[str, str]) -> GrpcStream:
    reply = message_class("inference.ModelStreamInferResponse")
    return GrpcStream(STREAM_INFER, infer_message(), reply, running, headers)


def _reflection(running: Live, headers: dict[str, str]) -> GrpcStream:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    return GrpcStream(REFLECTION, request, reflection_pb2.ServerReflectionResponse, running, headers)


async def _one_message(make: Callable[..., GrpcStream], running: Live, headers: dict[str, str]) -> str:
    async with aclosing(make(running, headers)) as stream:  # type: ignore[type-var]  # it has `aclose`
        return await stream.send()


def _long_message() -> Any:
    """So many fields that its call is handed over to a task."""
    message = infer_message()
    for number in range(600):
        message.outputs.add(name=f"output-{number:09d}")
    return message


def _ways() -> dict[str, Way]:
    ways: dict[str, Way] = {}
    for client in ("http", "http2"):
        ways |= {f"{client} {page}": partial(_http, client, ("GET", page, None), {}) for page in PAGES}
        ways[f"{client} predict"] = partial(_http, client, ("POST", PREDICT_PATH, ROWS), {})
        ways[f"{client} infer"] = partial(_http, client, ("POST", INFER_PATH, INFER), {})
        ways[f"{client} by ASGI"] = partial(
            _http, client, ("POST", PREDICT_PATH, ROWS), {"content-encoding": "identity"}
        )
        ways[f"{client} default model"] = partial(_http, client, ("POST", "/predict", ROWS), {})
    predict = message_class("tensorflow.serving.GetModelStatusRequest")()
    predict.model_spec.name = "m"
    metadata = message_class("inference.ServerMetadataRequest")()
    ways["gRPC at once"] = partial(_unary, MODEL_INFER, infer_message())
    ways["gRPC in a task"] = partial(_unary, "/tensorflow.serving.ModelService/GetModelStatus", predict)
    ways["gRPC document"] = partial(_unary, "/inference.GRPCInferenceService/ServerMetadata", metadata)
    ways["gRPC stream"] = partial(_one_message, _infer_stream)
    ways["gRPC reflection"] = partial(_one_message, _reflection)
    return ways


def secret_of(number: int) -> str:
    return f"key-of-way-{number:04d}-0123456789"


def play(folder: Path, scenario: Callable[[Live], Awaitable[None]], *keys: Any, **settings: Any) -> None:
    async def main() -> None:
        access = str(access_file(folder, *keys))
        async with live(folder, access_file=access, **settings) as running:
            async with asyncio.timeout(HANG_S):
                await scenario(running)

    asyncio.run(main())


@in_every_arrangement
def test_each_request_counts_once_whatever_way_it_takes(tmp_path: Path, frontends: int) -> None:
    ways = _ways()

    async def scenario(running: Live) -> None:
        for number, (name, way) in enumerate(ways.items()):
            told = [await way(running, bearer(secret_of(number))) for _ in range(BURST + 2)]
            assert told == BURST * ["ok"] + 2 * ["rate"], name

        # A message that takes long to read is wrong, and counts once, too.
        headers = bearer(secret_of(len(ways)))
        told = [await _unary(MODEL_INFER, _long_message(), running, headers) for _ in range(BURST + 1)]
        assert "rate" not in told[:BURST], told
        assert told[BURST] == "rate"

        # A stream and its messages.
        headers = bearer(secret_of(len(ways) + 1))
        for made in (_infer_stream(running, headers), _reflection(running, headers)):
            async with aclosing(made) as stream:  # type: ignore[type-var]  # it has `aclose`
                told = [await stream.send() for _ in range(2)]
            assert told == (
                ["ok", "ok"] if made._reply.DESCRIPTOR.name == "ModelStreamInferResponse" else ["ok", "rate"]
            )
        headers = bearer(secret_of(len(ways) + 2))
        lines = LineStream(running, headers)
        await lines.open()
        assert [await lines.send() for _ in range(BURST - 1)] == (BURST - 1) * ["ok"]
        assert await ways["http predict"](running, headers) == "rate"
        await lines.aclose()

    keys = [key(f"way-{number}", secret_of(number), rate=0.0001, burst=BURST) for number in range(len(ways) + 3)]
    play(tmp_path, scenario, *keys, frontends=frontends)


@in_every_arrangement
def test_a_key_that_is_removed_ends_on_every_way_and_in_streams_that_go_on(tmp_path: Path, frontends: int) -> None:
    headers = bearer(secret_of(0))

    async def scenario(running: Live) -> None:
        lines = LineStream(running, headers)
        await lines.open()
        async with AsyncExitStack() as stack:
            lasting = [_infer_stream(running, headers), _reflection(running, headers), lines]
            for each in lasting:
                stack.push_async_callback(each.aclose)
            for _ in range(2):  # a head is known at the second time
                assert {name: await way(running, headers) for name, way in _ways().items()} == dict.fromkeys(
                    _ways(), "ok"
                )
                assert [await each.send() for each in lasting] == 3 * ["ok"]
            for face in running.faces:
                assert face.access is not None
                face.access.change(AccessFile())
            assert [await each.send() for each in lasting] == 3 * ["gone"]
            for _ in range(2):
                assert {name: await way(running, headers) for name, way in _ways().items()} == dict.fromkeys(
                    _ways(), "gone"
                )

    play(tmp_path, scenario, key("one", secret_of(0)), frontends=frontends)


#: Lines of credentials of one request: of the key, of another that is valid, of none.
LINES = [("authorization", f"Bearer {secret_of(0)}"), ("x-api-key", secret_of(0)), ("x-api-key", secret_of(1)),
         ("authorization", f"Bearer {secret_of(1)}"), ("x-api-key", "wrong-key-0123456789")]  # fmt: skip


def test_two_lines_of_credentials_are_decided_alike_on_every_way(tmp_path: Path) -> None:
    """Whatever their order; and a request that names two callers is nobody's."""

    async def scenario(running: Live) -> None:
        for lines in itertools.product(LINES, LINES):
            told = []
            for client in (
                running.http,
                running.http,
                running.http2,
                running.http2,
            ):  # a head is known, then
                for path, document in ((PREDICT_PATH, ROWS), ("/predict", ROWS)):
                    told.append(_of_http(await client.post(path, json=document, headers=list(lines))))
            content = infer_message().SerializeToString()
            try:
                await running.channel.unary_unary(MODEL_INFER)(content, metadata=lines)
                told.append("ok")
            except grpc.aio.AioRpcError as error:
                told.append(_of_grpc(error))
            secrets = {value.rpartition(" ")[2] for _, value in lines}
            assert len(set(told)) == 1, (lines, told)
            assert told[0] == "gone" or len(secrets) == 1, lines

    play(tmp_path, scenario, key("one", secret_of(0)), key("two", secret_of(1)))


# --- replies ---

#: Header fields of HTTP/1.1 alone, or that tell the time.
_OWN = {"connection", "date", "keep-alive", "server"}
LONG = {f"x-{number}": 1000 * "x" for number in range(20)}
REQUESTS: list[tuple[str, str, Any, dict[str, str]]] = [
    *[("GET", page, None, {"x-request-id": "abc"}) for page in ("/v1/models", "/v2", "/livez", "/nowhere")],
    *[
        ("POST", path, document, more)
        for path, document in ((PREDICT_PATH, ROWS), (INFER_PATH, INFER), (PREDICT_PATH, {"instances": 1}))
        for more in (
            {},
            {"x-request-id": "abc"},
            {"x-request-timeout-ms": "no"},
            {"x-request-timeout-ms": "10000", "x-request-priority": "1"},
            {"content-encoding": "none"},
            {"accept-encoding": "gzip"},
            {"origin": "http://x"},
            LONG,
            {**LONG, "x-request-id": "abc"},
            {f"y-{number}": "x" for number in range(90)},
            {f"y-{number}": "x" for number in range(120)},
            {name: 4 * value for name, value in LONG.items()},
        )
    ],
    ("PUT", PREDICT_PATH, ROWS, {}),
    ("POST", PREDICT_PATH, {"instances": [[1.0] * 9999]}, {}),
]  # fmt: skip


def test_a_request_over_http2_has_the_reply_that_it_has_over_http1(tmp_path: Path) -> None:
    async def scenario(running: Live) -> None:
        for method, path, document, more in REQUESTS:
            replies = []
            for client in (
                running.http,
                running.http,
                running.http2,
                running.http2,
            ):  # a head is known, then
                reply = await client.request(method, path, json=document, headers=more)
                fields = {name: value for name, value in reply.headers.items() if name not in _OWN}
                if "server-timing" in fields:
                    fields["server-timing"] = "some"
                replies.append((reply.status_code, fields, reply.content))
            assert replies[1:] == 3 * replies[:1], (method, path, list(more.items())[:1], len(more))

    async def main() -> None:
        async with live(tmp_path) as running, asyncio.timeout(HANG_S):
            await scenario(running)

    asyncio.run(main())
