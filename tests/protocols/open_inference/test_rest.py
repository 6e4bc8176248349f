from __future__ import annotations

import gzip
import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import errors
from app.core.errors import DeadlineExceeded, InferenceFailed, Overloaded
from app.protocols.open_inference.datatypes import DATATYPES
from app.transports.http.http_api import LONG_BODY_BYTES
from tests.support import open_inference_world
from tests.support.fakes import run_in_fake_time
from tests.support.open_inference_world import AB, JSON_AB, World, binary_request, json_input, sum_model, values_of
from tests.support.protocol_fakes import echo_model, scope

INFER = "/v2/models/m/infer"


def test_the_server():
    world = World()
    document = world.get("/v2").json()
    assert document["name"] == "ferry"
    assert "system_shared_memory" not in document["extensions"]
    assert world.finished.protocol == "open_inference_rest"
    assert world.finished.code == "200"


@pytest.mark.parametrize(
    ("dead", "unready", "live", "ready"), [([], [], 200, 200), ([], ["loading"], 200, 503), (["stuck"], [], 503, 503)]
)
def test_health(dead, unready, live, ready):
    world = World()
    world.health.reasons_dead, world.health.reasons_unready = dead, unready
    answer = world.get("/v2/health/live")
    assert (answer.status, answer.json()) == (live, {"live": live == 200})
    answer = world.get("/v2/health/ready")
    assert (answer.status, answer.json()) == (ready, {"ready": ready == 200})


def test_models():
    world = World(sum_model(version=1), sum_model(version=2))
    assert world.get("/v2/models/m").json()["versions"] == ["1", "2"]
    assert world.get("/v2/models/m/versions/1").json()["versions"] == ["1"]
    assert world.get("/v2/models/m/ready").json() == {"name": "m", "ready": True}
    assert world.get("/v2/models/m/versions/2/ready").status == 200
    assert world.get("/v2/models/m/config").json()["max_batch_size"] == 4


@pytest.mark.parametrize("what", ["", "/ready", "/config", "/stats"])
@pytest.mark.parametrize(
    ("model", "status"), [("q", 404), ("m/versions/9", 404), ("m/versions/x", 400), ("m/versions/" + "9" * 19, 400)]
)
def test_models_that_are_not_there(model, status, what):
    answer = World().get(f"/v2/models/{model}{what}")
    assert answer.status == status
    assert answer.error


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/v2/q", "GET", 404), (INFER, "GET", 405), ("/v2", "POST", 405)]
)
def test_wrong_paths_and_methods(path, method, status):
    world = World()
    answer = world.post(path) if method == "POST" else world.get(path)
    assert answer.status == status
    assert path in answer.error
    allowed = "OPTIONS, POST" if path == INFER else "GET, HEAD, OPTIONS"
    assert answer.headers.get("allow") == (allowed if status == 405 else None)


def test_infer():
    world = World()
    answer = world.infer({**JSON_AB, "id": "7"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "model_name": "m", "model_version": "1", "id": "7",
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [2, 2], "data": [6.0, 8.0, 10.0, 12.0]},
            {"name": "product", "datatype": "FP32", "shape": [2, 2], "data": [5.0, 12.0, 21.0, 32.0]},
        ],
    }  # fmt: skip
    assert (world.finished.model, world.finished.version, world.finished.signature) == ("m", 1, "serving_default")
    assert world.post("/v2/models/m/versions/1/infer", JSON_AB).status == 200


def test_only_the_outputs_wanted_are_computed():
    world = World()
    answer = world.infer({**JSON_AB, "outputs": [{"name": "product"}]})
    assert [output["name"] for output in answer.json()["outputs"]] == ["product"]
    assert world.repository.resolve("m").requests[0].outputs == ("product",)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_in_binary(datatype):
    x = values_of(datatype)
    world = World(echo_model("string" if datatype == "BYTES" else x.dtype, (None, 2)))
    body, headers = binary_request({"x": x}, parameters={"binary_data_output": True})
    document, tail = world.infer(body, headers).parts()
    assert document["outputs"][0]["datatype"] == datatype
    assert tail == body[int(headers["Inference-Header-Content-Length"]) :]


def test_a_bare_tensor_both_ways():
    world = World(echo_model("float32", (None, 2)))
    document, tail = world.infer(AB["a"].tobytes(), {"Inference-Header-Content-Length": "0"}).parts()
    assert document["outputs"][0]["shape"] == [2, 2]
    assert tail == AB["a"].tobytes()


def test_scalars_empty_batches_and_classes():
    world = World()
    total = {"inputs": [json_input("a", np.ones(3, np.float32))], "parameters": {"signature_name": "total"}}
    assert world.infer(total).json()["outputs"] == [{"name": "total", "datatype": "FP32", "shape": [], "data": [3.0]}]
    empty = {"inputs": [json_input(name, np.empty((0, 2), np.float32)) for name in "ab"]}
    assert world.infer(empty).json()["outputs"][0] == {"name": "sum", "datatype": "FP32", "shape": [0, 2], "data": []}
    classes = {**JSON_AB, "outputs": [{"name": "sum", "parameters": {"classification": 1}}]}
    assert world.infer(classes).json()["outputs"] == [
        {"name": "sum", "datatype": "BYTES", "shape": [2, 1], "data": ["8.000000:1", "12.000000:1"]}
    ]


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_bodies_and_replies_compressed(encoding, pack):
    world = World(echo_model("float32", (None, 2)))
    body, headers = binary_request({"x": np.zeros((500, 2), np.float32)}, parameters={"binary_data_output": True})
    answer = world.infer(pack(body), {**headers, "Content-Encoding": encoding, "Accept-Encoding": encoding})
    assert answer.headers["content-encoding"] == encoding
    assert len(answer.body) < 1000
    answer.body = gzip.decompress(answer.body) if encoding == "gzip" else zlib.decompress(answer.body)
    assert answer.parts()[1] == bytes(4000)


def test_the_repository():
    world = World(sum_model(), sum_model(name="n"))
    states = [("m", "READY"), ("n", "READY"), ("new", "UNAVAILABLE")]
    assert [(each["name"], each["state"]) for each in world.post("/v2/repository/index").json()] == states
    assert world.post("/v2/repository/models/m/unload", {"parameters": {"unload_dependents": True}}).json() == {}
    assert world.get("/v2/models/m/ready").status == 404
    assert [each["name"] for each in world.post("/v2/repository/index", {"ready": True}).json()] == ["n"]
    assert world.post("/v2/repository/models/m/load", {}).json() == {}
    assert world.get("/v2/models/m/ready").status == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("models/broken/load", b"", 503, "no graph"),
        ("models/q/unload", b"", 404, "not in the repository"),
        ("models/m/load", {"parameters": {"config": "{"}}, 400, "failed to load 'm': Parameter 'config' is not JSON"),
        ("models/m/load", {"parameters": {"config": '{"name": "n"}'}}, 400, "Field 'name' of the config cannot be"),
        ("models/m/load", {"parameters": {"file:1/model": "eA=="}}, 400, "Parameter 'file:1/model'"),
        ("models/m/load", b"[]", 400, "must be a JSON object"),
        ("models/m/unload", b"{", 400, "JSON Parse error"),
        ("index", {"ready": 1}, 400, "Parameter 'ready'"),
    ],
)
def test_the_repository_rejects(path, body, status, text):
    answer = World().post(f"/v2/repository/{path}", body)
    assert answer.status == status
    assert text in answer.error


def test_statistics():
    world = World(sum_model(), sum_model(name="n"))
    world.infer(JSON_AB)
    world.infer({**JSON_AB, "outputs": [{"name": "q"}]})
    world.get("/v2/models/m")
    (stats,) = world.get("/v2/models/m/stats").json()["model_stats"]
    assert stats["version"] == "1"
    assert stats["inference_stats"]["success"]["count"] == 1
    assert [each["name"] for each in world.get("/v2/models/stats").json()["model_stats"]] == ["m", "n"]


def test_shared_memory(tmp_path):
    (tmp_path / "k").write_bytes(AB["a"].tobytes() + AB["b"].tobytes() + bytes(16))
    world = World(shared=tmp_path)
    regions = "/v2/systemsharedmemory"
    assert "system_shared_memory" in world.get("/v2").json()["extensions"]
    assert world.post(f"{regions}/region/r/register", {"key": "/k", "offset": 0, "byte_size": 48}).json() == {}
    status = [{"name": "r", "key": "/k", "offset": 0, "byte_size": 48}]
    assert world.get(f"{regions}/status").json() == world.get(f"{regions}/region/r/status").json() == status

    def part(offset):
        return {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": offset}

    inputs = [
        {"name": name, "shape": [2, 2], "datatype": "FP32", "parameters": part(offset)}
        for name, offset in (("a", 0), ("b", 16))
    ]
    document = {"inputs": inputs, "outputs": [{"name": "sum", "parameters": part(32)}]}
    assert world.infer(document).status == 200
    assert (tmp_path / "k").read_bytes()[32:] == (AB["a"] + AB["b"]).tobytes()
    assert world.post(f"{regions}/region/r/unregister").status == 200
    assert world.infer(document).error == "Unable to find system shared memory region: 'r'"
    assert world.get(f"{regions}/status").json() == []


def test_a_client_elsewhere_shares_no_memory(tmp_path, monkeypatch):
    (tmp_path / "k").write_bytes(bytes(16))
    world = World(shared=tmp_path)
    region = "/v2/systemsharedmemory/region/r"
    key = {"key": "/k", "offset": 0, "byte_size": 16}
    assert world.post(f"{region}/register", key).status == 200, "a Unix socket is local"
    monkeypatch.setattr(open_inference_world, "scope", lambda *asked: {**scope(*asked), "client": ("10.1.2.3", 5000)})
    changes = ((f"{region}/register", key), (f"{region}/unregister", {}), ("/v2/systemsharedmemory/unregister", {}))
    part = {"shared_memory_region": "r", "shared_memory_byte_size": 16}
    inputs = [{"name": "a", "shape": [2, 2], "datatype": "FP32", "parameters": part}, json_input("b", AB["b"])]
    calls = ({"inputs": inputs}, {**JSON_AB, "outputs": [{"name": "sum", "parameters": part}]})
    for path, body in (*changes, *((INFER, document) for document in calls)):
        answer = world.post(path, body)
        assert (answer.status, "loopback interface" in answer.error) == (403, True)
    assert world.infer(JSON_AB).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v2/cudasharedmemory/region/r/register"), ("GET", "/v2/systemsharedmemory/status"),
     ("POST", "/v2/systemsharedmemory/region/r/register"), ("POST", "/v2/systemsharedmemory/unregister")],
)  # fmt: skip
def test_shared_memory_that_is_off_is_not_supported(method, path):
    world = World()
    answer = world.get(path) if method == "GET" else world.post(path)
    assert answer.status == 501


@pytest.mark.parametrize("shared", [False, True])
def test_there_is_no_region_of_cuda_memory(shared, tmp_path):
    """Triton's examples unregister all regions before they begin, of both kinds."""
    world = World(shared=tmp_path if shared else None)
    cuda = "/v2/cudasharedmemory"
    for path in (f"{cuda}/unregister", f"{cuda}/region/r/unregister"):
        answer = world.post(path)
        assert (answer.status, answer.json()) == (200, {})
    assert world.get(f"{cuda}/status").json() == []
    assert world.get(f"{cuda}/region/r/status").status == 400


@pytest.mark.parametrize(("body", "code"), [(b"{", 400), (b"", 400), (b"x" * 3000, 413)])
def test_bodies_that_cannot_be_read(body, code):
    world = World(max_body_bytes=2000)
    assert world.infer(body).status == code
    assert world.finished.code == str(code)
    assert world.finished.signature == ""


@pytest.mark.parametrize("path", ["index", "models/m/load", "models/m/unload"])
def test_long_documents_that_are_no_inputs_are_rejected_unread(path):
    world = World(max_body_bytes=10 * LONG_BODY_BYTES)
    assert world.post(f"/v2/repository/{path}", b" " * LONG_BODY_BYTES).status == 413


@pytest.mark.parametrize(("error", "code"), [(Overloaded("full"), 503), (DeadlineExceeded("late"), 504),
                                             (InferenceFailed("no"), 500), (RuntimeError("bug"), 500)])  # fmt: skip
def test_failures_of_the_model(error, code):
    fails = sum_model()
    fails.failure = error
    world = World(fails)
    answer = world.infer(JSON_AB)
    assert answer.status == code
    assert answer.error == (str(error) if isinstance(error, errors.ServingError) else "Internal error")
    assert (world.finished.model, world.finished.signature) == ("m", "serving_default")


@pytest.mark.parametrize(
    ("headers", "parameters", "limit_s"),
    [({}, {}, 30), ({"X-Request-Timeout-Ms": "5000"}, {}, 5), ({}, {"timeout": 2_000_000}, 2), ({}, {"timeout": 0}, 30),
     ({"X-Request-Timeout-Ms": "5000"}, {"timeout": 9_000_000}, 5), ({}, {"timeout": 90_000_000}, 30)],
)  # fmt: skip
def test_deadlines(headers, parameters, limit_s):
    model = sum_model()
    answer = run_in_fake_time(World(model).request("POST", INFER, {**JSON_AB, "parameters": parameters}, headers))
    assert answer.status == 200
    assert model.requests[0].deadline_s == 1000 + limit_s


@pytest.mark.parametrize(
    ("headers", "parameters", "priority"),
    [({}, {}, 0), ({"X-Request-Priority": "2"}, {}, 2), ({}, {"priority": 3}, 3),
     ({"X-Request-Priority": "2"}, {"priority": 3}, 3), ({"X-Request-Priority": "2"}, {"priority": 0}, 2)],
)  # fmt: skip
def test_the_priority_is_the_bodys_or_the_headers(headers, parameters, priority):
    model = sum_model()
    answer = World(model).infer({**JSON_AB, "parameters": parameters}, headers)
    assert answer.status == 200
    assert model.requests[0].priority == priority


def test_a_malformed_priority_is_rejected():
    answer = World().infer(JSON_AB, {"X-Request-Priority": "1.5"})
    assert answer.status == 400
    assert answer.error == "X-Request-Priority must be a whole number from 0, 1 being the highest, not '1.5'"


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["id", "inputs", "outputs", "parameters"]),
        st.recursive(
            st.one_of(
                st.none(), st.booleans(), st.integers(-3, 2**65), st.floats(), st.sampled_from(["a", "FP32", ""])
            ),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["name", "shape", "datatype", "data", "parameters"]), inner, max_size=5
                )
            ),
            max_leaves=12,
        ),
    )
)
def test_any_document_is_answered_or_rejected(document):
    body = json.dumps(document).encode()
    assert World().infer(body).status in {400, 200}
