"""What a real server writes from its start to its end, as JSON and as text, and the access log in it."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path

import grpc
import httpx
import pytest

from tests.frontends.test_processes import models
from tests.support.processes import free_port, serving

NUMPY = ("-m", "tests.server.numpy_process")
FRONTENDS = ("-m", "tests.frontends.numpy_server")
PATH, BODY = "/v1/models/m:predict", {"instances": [[1.0, 2.0]]}
GRPC_PATH = "/inference.GRPCInferenceService/ModelInfer"
SECRET = "the-clients-secret"  # noqa: S105 - of nobody
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.mark.parametrize("frontends", [0, 2])
def test_every_line_is_an_object_with_requests_and_their_ids(tmp_path: Path, frontends: int) -> None:
    port = free_port()
    more = {"frontends": frontends, "grpc_port": port, "log_format": "json", "access_log": 1, "warm_up": False}
    command = FRONTENDS if frontends else NUMPY
    with serving(models(tmp_path), tmp_path / "log", command, **more) as server:
        given = {"X-Request-Id": "abc-1", "Authorization": SECRET}
        answered = server.client.post(PATH, json=BODY, headers=given)
        plain = server.client.post(PATH, json=BODY)
        gone = server.client.post("/v1/models/nope:predict", json=BODY, headers={"x-request-id": "abc-2"})
        odd = server.client.post(PATH, json=BODY, headers={"x-request-id": "x" * 129})
        page = server.client.get("/health", headers={"x-request-id": "abc-3"})
        with httpx.Client(base_url=server.url, http1=False, http2=True) as http2:
            over_http2 = http2.post(PATH, json=BODY, headers={"x-request-id": "abc-4"})
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary(GRPC_PATH)(b"\xff", metadata=[("x-request-id", "abc-5")])
        server.terminate()
        assert server.wait() == 0
    assert [each.headers.get("x-request-id") for each in (answered, plain, gone, odd, page, over_http2)] == [
        "abc-1", None, "abc-2", None, "abc-3", "abc-4"
    ]  # fmt: skip
    assert ("x-request-id", "abc-5") in [(each.key, each.value) for each in raised.value.trailing_metadata()]

    text = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert SECRET not in text
    assert all(re.fullmatch(TIME, line["time"]) for line in lines)
    assert {line["level"] for line in lines} == {"info"}
    messages = [line["message"] for line in lines]
    assert any(each.startswith("HTTP on 127.0.0.1") for each in messages)
    assert f"gRPC on 127.0.0.1, port {port}" in messages
    assert any(f"serves the models of {tmp_path}/models; pages: {server.url}/docs" in each for each in messages)
    assert f"""Call it: curl -d '{{"instances":[[0.0,0.0]]}}' {server.url}{PATH}""" in messages
    assert "Draining" in messages
    assert ("m", 1) in [(line.get("model"), line.get("version")) for line in lines]

    access = {line["request_id"]: line for line in lines if line["logger"] == "ferry.access"}
    told = {name: (line["status"], line["path"], line.get("model")) for name, line in access.items()}
    assert told["abc-1"] == told["abc-4"] == ("200", PATH, "m")
    assert told["abc-2"] == ("404", "/v1/models/nope:predict", None)
    assert told["abc-3"] == ("200", "/health", None)
    assert told["abc-5"] == ("INVALID_ARGUMENT", GRPC_PATH, None)
    first = access["abc-1"]
    assert (first["bytes"], first["client"], first["method"]) == (len(answered.content), "127.0.0.1", "POST")
    assert first["version"] == 1
    assert first["seconds"] > 0
    made = [name for name in access if not name.startswith("abc")]
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in made)
    assert sum(access[name]["path"] == PATH for name in made) == 2


def test_text_has_one_form_of_time_and_without_an_access_log_no_requests(tmp_path: Path) -> None:
    with serving(models(tmp_path), tmp_path / "log", NUMPY, warm_up=False) as server:
        assert server.client.post(PATH, json=BODY).status_code == 200
        server.terminate()
        assert server.wait() == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) > 10
    assert all(re.match(rf"{TIME} INFO    [\w.]+: ", line) for line in lines)
    assert not any(":predict" in line and "Call it" not in line for line in lines)


@pytest.mark.parametrize("frontends", [0, 2])
def test_a_log_that_nobody_reads_holds_up_neither_requests_nor_the_end(tmp_path: Path, frontends: int) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)
    read = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    room = fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, 4096)  # some lines
    more = {"frontends": frontends, "access_log": 1, "warm_up": False}
    with serving(models(tmp_path), log, FRONTENDS if frontends else NUMPY, **more) as server:
        answered = [server.client.post(PATH, json=BODY).status_code for _ in range(80)]
        live = server.client.get("/livez").status_code
        server.terminate()
        assert server.wait() == 0
    assert (answered, live) == ([200] * 80, 200)
    written = os.read(read, 2 * room)
    os.close(read)
    assert len(written) > room // 2
    assert all(re.match(TIME, line) for line in written.decode().splitlines())
