"""The whole application over models that numpy computes, driven as a server drives it."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Mapping
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

from app.core.errors import DeadlineExceeded, InferenceFailed, ModelNotReady, OutOfMemory, Overloaded, ShuttingDown
from app.core.events import RequestFinished
from app.core.inference import STRING, Array, ModelSignature
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.transports.http.replies import HttpOptions
from tests.support.fakes import run_in_fake_time
from tests.support.protocol_fakes import Client, FakeModel, FakeRepository, echo_model, model, scope, scripted, specs


def half_plus_two(name: str = "m", version: int = 1) -> Any:
    return model(
        specs(x=("float32", (None,))),
        specs(y=("float32", (None,))),
        lambda inputs: {"y": inputs["x"] / 2 + np.float32(version + 1)},
        name=name,
        version=version,
    )


def adder() -> Any:
    return model(
        specs(a=("int32", (None,)), b=("int32", (None,))),
        specs(sum=("int32", (None,)), text_bytes=("string", (None,))),
        lambda i: {"sum": i["a"] + i["b"], "text_bytes": np.array([b"\xff"] * len(i["a"]), STRING)},
    )


# --- predict ---


def test_rows() -> None:
    client = Client(half_plus_two())
    answer = client.predict({"instances": [1.0, 2, 5]})
    assert (answer.status, answer.body) == (200, b'{"predictions":[2.5,3.0,4.5]}')
    assert client.finished.seconds >= 0
    expected = RequestFinished("tensorflow_rest", "200", "m", 1, "serving_default", client.finished.seconds)
    assert client.finished == expected


def test_columns() -> None:
    answer = Client(half_plus_two()).predict({"inputs": {"x": [1, 2]}, "signature_name": ""})
    assert (answer.status, answer.body) == (200, b'{"outputs":[2.5,3.0]}')


def test_several_inputs_and_outputs() -> None:
    client = Client(adder())
    rows = client.predict({"instances": [{"a": 1, "b": 2}]})
    assert rows.json() == {"predictions": [{"sum": 3, "text_bytes": {"b64": "/w=="}}]}
    columns = client.predict({"inputs": {"a": [1], "b": [2]}})
    assert columns.json() == {"outputs": {"sum": [3], "text_bytes": [{"b64": "/w=="}]}}


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        ("float32", "[NaN, Infinity, -Infinity, Inf]", "[NaN,Infinity,-Infinity,Infinity]"),
        ("float16", "[0.5]", "[0.5]"),
        (ml_dtypes.bfloat16, "[0.5]", "[0.5]"),
        ("uint16", "[65535]", "[65535]"),
        ("int64", "[-9223372036854775808]", "[-9223372036854775808]"),
        ("uint64", "[18446744073709551615]", "[18446744073709551615]"),
        ("bool", "[true, false]", "[true,false]"),
        ("object", '["é", {"b64": "YQ=="}]', '["é","a"]'),
    ],
)
def test_values_of_every_kind(dtype: Any, value: str, text: str) -> None:
    body = f'{{"instances": {value}}} and garbage after the end'.encode()
    answer = Client(echo_model(dtype)).predict(body)
    assert answer.body.decode() == f'{{"predictions":{text}}}'


def test_an_output_of_rank_0_has_no_rows() -> None:
    scalar = model(specs(x=("float32", (None,))), specs(y=("float32", ())), lambda i: {"y": i["x"].sum()})
    client = Client(scalar)
    assert "has inconsistent batch size" in client.predict({"instances": [1, 2]}).error
    assert client.predict({"inputs": [1, 2]}).json() == {"outputs": 3.0}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "JSON Parse error: The document is empty at offset: 0"),
        (b"null", "JSON Value: null Is not object"),
        (b"{}", "Missing 'inputs' or 'instances' key"),
        (b'{"instances":' + b"[" * 50_000, "JSON Parse error: too deeply nested"),
        (b'{"instances":' + b"[" * 900 + b"]" * 900 + b"}", "Encountered list at unexpected level"),
        (
            b'{"instances":[1' + b"0" * 400 + b"]}",
            "0" * 252 + "... is out of the range of type: float",
        ),
        (b'{"instances":["\\ud800"]}', 'JSON Value: "\\ud800" Type: String is not of expected type: float'),
        (b'{"instances":["\xff"]}', "JSON Parse error: invalid UTF-8 at offset: 15"),
        (b'{"instances":[true]}', "is not of expected type: float"),
        (b'{"instances":[[1]]}', "Input 'x' has shape [1,1]; expected [?]"),
        (b'{"signature_name":1,"instances":[1]}', "'signature_name' key must be a string value."),
        (b'{"signature_name":"x","instances":[1]}', 'Serving signature name: "x" not found in signature def'),
        (b'{"signature_name":"\\ud800","instances":[1]}', 'Serving signature name: "\\ud800" not found'),
    ],
)
def test_bodies_that_do_not_fit_get_a_clear_400(body: bytes, error: str) -> None:
    client = Client(half_plus_two())
    answer = client.predict(body)
    assert answer.status == 400
    assert error in answer.error
    assert client.finished.code == "400"
    assert client.finished.signature in ("", "serving_default")


def test_the_last_of_equal_keys_counts() -> None:
    assert Client(half_plus_two()).predict(b'{"instances":[9],"instances":[1]}').json() == {"predictions": [2.5]}


def test_complex_outputs_are_not_supported_in_json() -> None:
    answer = Client(echo_model("complex64")).predict({"instances": [1]})
    assert (answer.status, answer.error) == (501, "Failed to write JSON value for tensor type: DT_COMPLEX64")


# --- which model ---


def test_versions_and_labels() -> None:
    client = Client(half_plus_two(version=1), half_plus_two(version=5))
    body = {"instances": [0]}
    assert client.post("/v1/models/m:predict", body).json() == {"predictions": [6.0]}
    assert client.post("/v1/models/m/versions/1:predict", body).json() == {"predictions": [2.0]}
    answer = client.post("/v1/models/m/versions/50:predict", body)
    assert (answer.status, answer.error) == (404, "Servable not found for request: Specific(m, 50)")
    answer = client.post("/v1/models/other:predict", body)
    assert (answer.status, answer.error) == (404, "Servable not found for request: Latest(other)")
    answer = client.post("/v1/models/m/labels/stable:predict", body)
    assert (answer.status, answer.error) == (400, "Unrecognized servable version label: stable")
    answer = client.post("/v1/models/m/versions/99999999999999999999:predict", body)
    assert (answer.status, answer.error) == (400, "Failed to convert version: 99999999999999999999 to numeric.")
    finished: list[Any] = client.events
    assert [event.model for event in finished] == ["m", "m", "", "", "", ""]


def test_the_default_model() -> None:
    body = {"instances": [0]}
    assert Client(half_plus_two("only")).post("/predict", body).json() == {"predictions": [2.0]}
    several = FakeRepository(half_plus_two("a"), half_plus_two("b", 3))
    answer = Client(repository=several).post("/predict", body)
    assert (answer.status, answer.error) == (400, "Several models are served: a, b")
    several.default = "b"
    assert Client(repository=several).post("/predict", body).json() == {"predictions": [4.0]}


def test_names_are_percent_decoded() -> None:
    client = Client(half_plus_two("a b/c"))
    assert client.post("/v1/models/a%20b%2Fc:predict", {"instances": [0]}).status == 200


def test_a_server_without_raw_paths() -> None:
    client = Client(half_plus_two())
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(client.app({**scope("GET", "/v1/models/m"), "raw_path": None}, scripted(), send))
    assert sent[0]["status"] == 200


# --- classify, regress ---


def test_classify_and_regress() -> None:
    inputs = specs(inputs=("string", (None,)))
    classifier = model(
        inputs,
        specs(classes=("string", (None, 1)), scores=("float32", (None, 1))),
        lambda i: {"classes": i["inputs"][:, None], "scores": np.full((len(i["inputs"]), 1), 0.9, np.float32)},
    )
    answer = Client(classifier).post("/v1/models/m:classify", {"examples": [{}, {}]})
    assert answer.json() == {"results": [[["", 0.9]], [["", 0.9]]]}
    regressor = model(
        inputs, specs(outputs=("float32", (None, 1))), lambda i: {"outputs": np.ones((len(i["inputs"]), 1), np.float32)}
    )
    client = Client(regressor)
    answer = client.post("/v1/models/m:regress", {"examples": [{"f": 1}], "signature_name": ""})
    assert answer.body == b'{"results":[1.0]}'
    assert client.finished.signature == "serving_default"
    answer = client.post("/v1/models/m:classify", {"examples": [{"f": 1}]})
    assert (answer.status, answer.error.split(":")[0]) == (400, "Signature 'serving_default' cannot classify")


# --- status, metadata, the rest of /v1 ---


def test_status() -> None:
    client = Client(half_plus_two(version=1), half_plus_two(version=2))
    every = client.get("/v1/models/m").json()["model_version_status"]
    assert [each["version"] for each in every] == ["2", "1"]
    one = client.get("/v1/models/m/versions/1").json()["model_version_status"]
    assert [each["version"] for each in one] == ["1"]
    assert client.get("/v1/models/m/labels/ignored").json()["model_version_status"] == every
    answer = client.get("/v1/models/other")
    assert (answer.status, answer.error) == (404, "Could not find any versions of model other")
    answer = client.get("/v1/models/m/versions/7")
    assert (answer.status, answer.error) == (404, "Could not find version 7 of model m")


def test_models_are_listed() -> None:
    document = Client(half_plus_two("a"), half_plus_two("b")).get("/v1/models").json()
    assert [each["name"] for each in document["models"]] == ["a", "b"]
    assert document["models"][0]["model_version_status"][0]["state"] == "AVAILABLE"


def test_metadata() -> None:
    client = Client(half_plus_two(version=3))
    document = client.get("/v1/models/m/versions/3/metadata").json()
    assert document["model_spec"] == {"name": "m", "signature_name": "", "version": "3"}
    assert list(document["metadata"]["signature_def"]["signature_def"]) == ["serving_default"]
    assert (client.finished.model, client.finished.version, client.finished.signature) == ("m", 3, "")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/foo"),
        ("GET", "/v1/models/m:predict"),
        ("POST", "/v1/models/m/metadata"),
        ("HEAD", "/v1/models/m"),
        ("OPTIONS", "/v1/models/m:predict"),
        ("GET", "/predict"),
    ],
)
def test_wrong_methods_and_paths(method: str, path: str) -> None:
    client = Client(half_plus_two())
    answer = client.get(path, method)
    assert (answer.status, answer.error) == (400, f"Malformed request: {method} {path}")
    assert client.finished.code == "400"


# --- bodies ---


def test_a_body_beyond_the_limit() -> None:
    client = Client(half_plus_two(), max_body_bytes=100)
    answer = client.predict({"instances": [1.0] * 100})
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert client.finished.code == "413"


def test_compressed_bodies() -> None:
    client = Client(half_plus_two())
    headers = {"content-encoding": "gzip"}
    assert client.predict(gzip.compress(b'{"instances":[1]}'), headers).json() == {"predictions": [2.5]}
    answer = client.predict(b"garbage", headers)
    assert (answer.status, answer.error) == (400, "The body is not valid gzip though Content-Encoding says so")
    assert client.predict(b"", {"content-encoding": "br"}).status == 415


# --- failures ---


@pytest.mark.parametrize(
    ("failure", "status", "headers"),
    [
        (Overloaded("full"), 503, {"retry-after": "1"}),
        (ModelNotReady("loading"), 503, {"retry-after": "1"}),
        (ShuttingDown("draining"), 503, {"retry-after": "1", "connection": "close"}),
        (OutOfMemory("no room"), 503, {"retry-after": "1"}),
        (DeadlineExceeded("late"), 504, {}),
        (InferenceFailed("broken"), 500, {}),
    ],
)
def test_failures_of_the_server(failure: Exception, status: int, headers: dict[str, str]) -> None:
    failing = half_plus_two()
    failing.failure = failure
    client = Client(failing)
    answer = client.predict({"instances": [1]})
    assert (answer.status, answer.error) == (status, str(failure))
    more = {k: v for k, v in answer.headers.items() if k not in ("content-type", "content-length")}
    assert more == headers
    assert client.finished.code == str(status)


def test_a_model_that_is_not_ready() -> None:
    client = Client(repository=FakeRepository(failure=ModelNotReady("Model m is still loading")))
    for answer in (client.predict({"instances": [1]}), client.get("/v1/models/m/metadata")):
        assert (answer.status, answer.error) == (503, "Model m is still loading")


def test_a_bug_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    failing = half_plus_two()
    failing.failure = ZeroDivisionError("secret")
    client = Client(failing)
    with caplog.at_level(logging.ERROR):
        answer = client.predict({"instances": [1]})
    assert (answer.status, answer.error) == (500, "Internal error")
    assert "secret" in caplog.text
    assert client.finished.code == "500"


# --- deadlines ---


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, 30.0), ("500", 0.5), ("0.5", 0.0005), ("99999999", 30.0), ("inf", 30.0)]
)
def test_deadlines(header: str | None, seconds: float) -> None:
    one = half_plus_two()

    async def main() -> float:
        client = Client(one)
        now = asyncio.get_running_loop().time()
        headers = {} if header is None else {"X-Request-Timeout-Ms": header}
        answer = await client.request("POST", "/v1/models/m:predict", {"instances": [1]}, headers)
        assert answer.status == 200
        return now

    now = run_in_fake_time(main())
    assert one.requests[0].deadline_s == pytest.approx(now + seconds, abs=1e-6)


@pytest.mark.parametrize("header", ["0", "-1", "soon", "", "nan"])
def test_a_malformed_timeout_is_rejected(header: str) -> None:
    answer = Client(half_plus_two()).predict({"instances": [1]}, {"x-request-timeout-ms": header})
    assert answer.status == 400
    assert f"Header X-Request-Timeout-Ms must be a number of milliseconds above 0, not {header!r}" in answer.error


# --- priorities ---


@pytest.mark.parametrize(("headers", "priority"), [({}, 0), ({"X-Request-Priority": "3"}, 3)])
def test_the_priority_is_a_header(headers: dict[str, str], priority: int) -> None:
    one = half_plus_two()
    assert Client(one).predict({"instances": [1]}, headers).status == 200
    assert one.requests[0].priority == priority


def test_a_malformed_priority_is_rejected() -> None:
    one = half_plus_two()
    answer = Client(one).predict({"instances": [1]}, {"x-request-priority": "urgent"})
    assert answer.status == 400
    assert answer.error == "X-Request-Priority must be a whole number from 0, 1 being the highest, not 'urgent'"
    assert not one.requests


# --- clients that go ---


async def nothing_is_sent(message: Any) -> None:
    raise AssertionError(message)


def test_a_client_that_disconnects_while_sending_is_counted() -> None:
    client = Client(half_plus_two())
    receive = scripted({"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"})
    asyncio.run(client.app(scope("POST", "/v1/models/m:predict"), receive, nothing_is_sent))
    assert client.finished.code == "499"


def test_a_client_that_disconnects_while_waiting_cancels_its_request() -> None:
    slow = half_plus_two()
    slow.never = True
    client = Client(slow)
    body = {"type": "http.request", "body": b'{"instances":[1]}'}
    receive = scripted(body, {"type": "http.disconnect"})
    run_in_fake_time(client.app(scope("POST", "/v1/models/m:predict"), receive, nothing_is_sent))
    assert slow.cancelled == 1
    assert (client.finished.code, client.finished.model) == ("499", "m")


def test_a_cancelled_request_is_one_event_and_stays_cancelled() -> None:
    slow = half_plus_two()
    slow.never = True
    client = Client(slow)

    async def main() -> None:
        receive = scripted({"type": "http.request", "body": b'{"instances":[1]}'})
        task = asyncio.ensure_future(client.app(scope("POST", "/v1/models/m:predict"), receive, nothing_is_sent))
        asyncio.get_running_loop().call_later(1.0, task.cancel)
        await task

    with pytest.raises(asyncio.CancelledError):
        run_in_fake_time(main())
    assert client.finished.code == "499"


# --- many at once, through a real client ---


def test_every_client_gets_its_own_rows() -> None:
    repository: Any = FakeRepository(half_plus_two())
    app: Any = TensorFlowRest(repository, lambda event: None, HttpOptions(1 << 20, 1e4))

    async def main() -> list[Any]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://ferry") as client:
            posts = [client.post("/v1/models/m:predict", json={"instances": [i, -i]}) for i in range(64)]
            return [json.loads(answer.content) for answer in await asyncio.gather(*posts)]

    assert asyncio.run(main()) == [{"predictions": [i / 2 + 2, -i / 2 + 2]} for i in range(64)]


def test_ragged_rows_are_nested_lists_in_rows_and_predictions() -> None:
    signature = ModelSignature(
        "serving_default",
        specs(x=("int32", (None,)), x_1=("int64", (None,))),
        specs(y=("int32", (None,)), y_1=("int64", (None,)), n=("int64", (None,))),
        ragged={"x": ("x_1",)},
        ragged_outputs={"y": ("y_1",)},
    )

    def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": inputs["x"] * 2, "y_1": inputs["x_1"], "n": np.diff(inputs["x_1"])}

    client = Client(FakeModel("m", 1, {"serving_default": signature}, {"serving_default": compute}))
    rows = {"predictions": [{"y": [2, 4], "n": 2}, {"y": [], "n": 0}, {"y": [6], "n": 1}]}
    assert client.predict({"instances": [[1, 2], [], [3]]}).json() == rows
    assert client.predict({"instances": [{"x": [1, 2]}, {"x": []}, {"x": [3]}]}).json() == rows
    columns = {"outputs": {"y": [2, 4, 6], "y_1": [0, 2, 2, 3], "n": [2, 0, 1]}}
    assert client.predict({"inputs": [[1, 2], [], [3]]}).json() == columns
    assert client.predict({"inputs": {"x": [1, 2, 3], "x_1": [0, 2, 2, 3]}}).json() == columns
    wrong = client.predict({"instances": [[1], 2]})
    assert (wrong.status, wrong.error.partition(";")[0]) == (400, "Input 'x': row 1 has 2 at depth 1")
