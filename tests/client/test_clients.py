"""What both clients do with a connection: retries, deadlines, errors. Time is fake, the server too."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Protocol

import httpx
import numpy as np
import pytest
from ferry_client import (
    AsyncClient,
    Client,
    ConnectionFailed,
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    InvalidResponse,
    ModelNotFound,
    Overloaded,
    RequestTooLarge,
    ServingError,
    Unsupported,
)

from tests.client.fakes import Answer, FakeServer

X = {"x": np.array([1, 2], np.int32)}


def answer(status: int, text: str = "why", **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx.Response(status, json={"error": text}, headers=names)


def echo(request: httpx.Request) -> httpx.Response:
    length = int(request.headers["inference-header-content-length"])
    head = json.dumps({"outputs": json.loads(request.content[:length])["inputs"]}).encode()
    headers = {"inference-header-content-length": str(len(head))}
    return httpx.Response(200, content=head + request.content[length:], headers=headers)


def body(content: bytes) -> Answer:
    return lambda _: httpx.Response(200, content=content)


class Ask(Protocol):
    """One call of a client that is made for it: options of the client, the method's name and its arguments."""

    def __call__(self, server: FakeServer, name: str, *args: Any, options: Any = None, **kwargs: Any) -> Any: ...


def ask_sync(server: FakeServer, name: str, *args: Any, options: Any = None, **kwargs: Any) -> Any:
    with server.client(**options or {}) as client:
        return getattr(client, name)(*args, **kwargs)


def ask_async(server: FakeServer, name: str, *args: Any, options: Any = None, **kwargs: Any) -> Any:
    async def main() -> Any:
        async with server.async_client(**options or {}) as client:
            return await getattr(client, name)(*args, **kwargs)

    return asyncio.run(main())


@pytest.fixture(params=[ask_sync, ask_async], ids=["Client", "AsyncClient"])
def ask(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


@pytest.mark.parametrize("url", ["http://ferry.test/team/a", "http://ferry.test/team/a/"])
def test_a_path_of_the_servers_url_precedes_every_path(url: str) -> None:
    """As behind a proxy that gives each server a prefix. A name with a slash stays one part of the path."""
    server = FakeServer(echo)
    with Client(url, http=httpx.Client(transport=httpx.MockTransport(server))) as client:
        client.predict("m/n", X)
    (request,) = server.requests
    assert request.url.raw_path == b"/team/a/v2/models/m%2Fn/infer"


def test_predict(ask: Ask) -> None:
    server = FakeServer(echo)
    assert ask(server, "predict", "m", X)["x"].tolist() == [1, 2]
    (request,) = server.requests
    assert str(request.url) == "http://ferry.test/v2/models/m/infer"
    assert request.headers["accept-encoding"] == "identity"


def test_other_calls(ask: Ask) -> None:
    described = {"name": "m", "inputs": [], "outputs": []}
    assert ask(FakeServer(body(json.dumps(described).encode())), "metadata", "m", version=1).name == "m"
    assert ask(FakeServer(body(b"[]")), "models") == []
    assert ask(FakeServer(body(b"")), "ready") is True


def test_a_credential_goes_with_each_request(ask: Ask) -> None:
    server = FakeServer(answer(503), echo)
    ask(server, "predict", "m", X, options={"credential": "ferry_key"})
    assert [each.headers["authorization"] for each in server.requests] == ["Bearer ferry_key"] * 2
    assert "ferry_key" not in repr(server.client(credential="ferry_key"))


def test_the_other_protocol(ask: Ask) -> None:
    server = FakeServer(body(b'{"model_version_status":[{"state":"AVAILABLE"}]}'))
    assert ask(server, "ready", "m", options={"protocol": "v1-json"}) is True
    assert server.requests[0].url.path == "/v1/models/m"


@pytest.mark.parametrize(
    "failure",
    [
        answer(503),
        answer(429),
        answer(502),
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("hung up"),
        httpx.ReadError("reset"),
    ],
)
def test_what_may_pass_is_tried_again(ask: Ask, failure: Answer | Exception) -> None:
    server = FakeServer(failure, failure, echo)
    assert ask(server, "predict", "m", X)["x"].tolist() == [1, 2]
    assert len(server.requests) == 3
    assert all(0 <= pause <= 2 for pause in server.time.pauses_s)


def test_retry_after_is_waited_for(ask: Ask) -> None:
    server = FakeServer(answer(503, retry_after="4"), echo)
    ask(server, "predict", "m", X)
    (pause_s,) = server.time.pauses_s
    assert 4 <= pause_s <= 4.2


def test_retry_after_may_be_a_date(ask: Ask) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    server = FakeServer(
        answer(503, retry_after=soon), answer(503, retry_after=past), answer(503, retry_after="?"), echo
    )
    ask(server, "predict", "m", X)
    first, second, third = server.time.pauses_s
    assert 5 < first <= 21
    assert second <= 2
    assert third <= 2


def test_retries_end_where_the_deadline_would_pass(ask: Ask) -> None:
    server = FakeServer(answer(503, "The queue is full", retry_after="4"))
    with pytest.raises(Overloaded, match="The queue is full") as error:
        ask(server, "predict", "m", X, timeout_s=10.0)
    assert len(server.requests) == 3
    assert server.time.now_s < 110
    assert (error.value.status, error.value.retry_after_s) == (503, 4.0)


def test_retries_end_after_the_attempts(ask: Ask) -> None:
    server = FakeServer(httpx.ConnectError("refused"))
    with pytest.raises(ConnectionFailed, match=r"POST http://ferry.test/v2/models/m/infer failed: refused") as error:
        ask(server, "predict", "m", X, options={"attempts": 3})
    assert len(server.requests) == 3
    assert error.value.status is None


def test_every_attempt_tells_the_time_that_is_left(ask: Ask) -> None:
    server = FakeServer(answer(503, retry_after="4"), echo)
    ask(server, "predict", "m", X, timeout_s=10.0)
    first, second = (int(request.headers["x-request-timeout-ms"]) for request in server.requests)
    assert first == 10_000
    assert second == pytest.approx(10_000 - server.time.pauses_s[0] * 1000, abs=1)
    assert server.requests[1].extensions["timeout"]["read"] == pytest.approx(second / 1e3, abs=1e-3)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, InvalidRequest),
        (413, RequestTooLarge),
        (501, Unsupported),
        (404, ModelNotFound),
        (500, InferenceFailed),
        (504, DeadlineExceeded),
        (302, InvalidResponse),
    ],
)
def test_other_errors_are_final(ask: Ask, status: int, kind: type[ServingError]) -> None:
    server = FakeServer(answer(status))
    with pytest.raises(kind) as error:
        ask(server, "predict", "m", X)
    assert (type(error.value), error.value.text, error.value.status) == (kind, "why", status)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content", "text"), [(b"<h1>No</h1>\n", "<h1>No</h1>"), (b"", "The server answered 500"), (b"[]", "[]")]
)
def test_errors_of_others_are_shown_as_they_are(ask: Ask, content: bytes, text: str) -> None:
    with pytest.raises(InferenceFailed) as error:
        ask(FakeServer(lambda _: httpx.Response(500, content=content)), "predict", "m", X)
    assert error.value.text == text


@pytest.mark.parametrize("timeout", [httpx.ReadTimeout("slow"), httpx.ConnectTimeout("slow")])
def test_a_silent_server_exceeds_the_deadline(ask: Ask, timeout: Exception) -> None:
    server = FakeServer(timeout)
    with pytest.raises(DeadlineExceeded, match="No answer within 5 s"):
        ask(server, "predict", "m", X, options={"timeout_s": 5.0})
    assert len(server.requests) == 1


def test_nothing_is_sent_when_time_is_up(ask: Ask) -> None:
    def slow_metadata(_: httpx.Request) -> httpx.Response:
        server.time.now_s += 40
        described = {"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}], "outputs": []}
        return httpx.Response(200, json=described)

    server = FakeServer(slow_metadata, echo)
    with pytest.raises(DeadlineExceeded, match="No answer within 30 s"):
        ask(server, "predict", "m", [1.0])
    assert len(server.requests) == 1


def test_readiness_is_asked_once_and_silence_means_no(ask: Ask) -> None:
    for failure in (answer(503), httpx.ConnectError("refused"), answer(404)):
        server = FakeServer(failure)
        assert ask(server, "ready") is False
        assert len(server.requests) == 1


def test_a_reply_that_cannot_be_decoded_says_so(ask: Ask) -> None:
    def broken(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))

    with pytest.raises(InvalidResponse):
        ask(FakeServer(broken), "models")


def test_a_reply_that_trickles_in_exceeds_the_deadline() -> None:
    def trickle() -> Iterator[bytes]:
        for _ in range(9):
            server.time.now_s += 1
            yield b" "
        pytest.fail("The whole reply was read")

    class Trickle(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            return trickle()

    server = FakeServer(lambda _: httpx.Response(200, stream=Trickle()))
    with pytest.raises(DeadlineExceeded):
        ask_sync(server, "models", timeout_s=3.0)


def test_async_calls_end_at_the_deadline_whatever_the_server_does() -> None:
    async def main() -> None:
        async def hang(_: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

        async with httpx.AsyncClient(transport=httpx.MockTransport(hang)) as http:
            with pytest.raises(DeadlineExceeded):
                await AsyncClient("http://ferry.test", http=http).predict("m", X, timeout_s=0.01)

    asyncio.run(main())


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_what_cannot_work_is_rejected_at_once(client: Any) -> None:
    with pytest.raises(ValueError, match="url must start with http"):
        client("localhost:8501")
    with pytest.raises(ValueError, match="protocol must be one of v2, v1-json"):
        client("http://localhost", protocol="v3")
    with pytest.raises(ValueError, match="attempts must be at least 1, not 0"):
        client("http://localhost", attempts=0)
    for credential in ("k\n", "k k", "kéy"):
        with pytest.raises(ValueError, match="credential must be printable ASCII without spaces") as raised:
            client("http://localhost", credential=credential)
        assert credential not in str(raised.value)
    with pytest.raises(ValueError, match="tls goes without http"):
        client("https://localhost", tls=ssl.create_default_context(), http=httpx.Client())


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan")])
def test_every_call_ends(ask: Ask, timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s must be a number of seconds above 0"):
        ask(FakeServer(echo), "models", timeout_s=timeout_s)


def test_connections_of_their_own_are_closed() -> None:
    with Client("http://ferry.test") as client:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        client.ready()

    async def main() -> None:
        async with AsyncClient("http://ferry.test") as client:
            pass
        with pytest.raises(RuntimeError, match="closed"):
            await client.ready()

    asyncio.run(main())


def test_connections_of_the_caller_stay_open() -> None:
    shared = FakeServer(echo)
    client = shared.client()
    client.close()
    assert client.predict("m", X)


def test_importing_the_client_is_light() -> None:
    heavy = "{'tensorflow', 'keras', 'fastapi', 'starlette', 'uvicorn', 'grpc', 'pydantic', 'app'}"
    code = f"import sys, ferry_client; print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "[]"


@pytest.mark.parametrize(("client", "name"), [(Client, "Client"), (AsyncClient, "AsyncClient")])
def test_a_client_prints_its_server_and_protocol(client: Any, name: str) -> None:
    assert repr(client("http://ferry.test/", protocol="v1-json")) == f"<{name} http://ferry.test, TensorFlowJson>"


WITHOUT_ML_DTYPES = """
import json, sys
sys.modules["ml_dtypes"] = None
import numpy as np
from ferry_client.exchange import Response
from ferry_client.errors import ServingError
from ferry_client.models import ModelSpec
from ferry_client.open_inference import OpenInference
from ferry_client.protocol import PredictCall
from ferry_client.tensorflow_json import TensorFlowJson

tensor = {"name": "y", "datatype": "BF16", "shape": [1], "data": [1.0]}
described = {"dtype": "DT_BFLOAT16", "tensor_shape": {"dim": []}}
signature = {"signature_def": {"serving_default": {"inputs": {}, "outputs": {"y": described}}}}
metadata = {"model_spec": {"name": "m", "version": "1"}, "metadata": {"signature_def": signature}}
for protocol, about, reply in (
    (OpenInference(), {"name": "m", "inputs": [], "outputs": [tensor]}, {"outputs": [tensor]}),
    (TensorFlowJson(), metadata, {"outputs": [1.0]}),
):
    known = protocol.metadata_response(Response({}, json.dumps(about).encode()), ModelSpec("m"))
    print(known.outputs["y"].dtype)
    try:
        call = PredictCall(ModelSpec("m"), {}, (), 1.0)
        protocol.predict_response(call, Response({}, json.dumps(reply).encode()), known)
    except ServingError as error:
        print(error)
"""


def test_without_ml_dtypes_only_bfloat16_is_an_error_and_it_names_the_package() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_ML_DTYPES], check=True, capture_output=True, text=True)
    v2_dtype, v2_error, v1_dtype, v1_error = done.stdout.splitlines()
    assert v2_dtype == v1_dtype == "None"
    assert v2_error == "Output 'y' is bfloat16, which needs the package ml_dtypes (pip install ml-dtypes)"
    assert "needs the package ml_dtypes" in v1_error
