"""gRPC's clients of other languages, straight and through nginx's `grpc_pass`: grpc-js of Node, and grpc-java."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.codecs.protobuf.messages import message_class
from tests.official_clients.conftest import Live
from tests.official_clients.environment import ENVIRONMENT, run
from tests.support.grpc_live import outputs_of, predict_request, spec
from tests.support.missing import skip_loudly
from tests.support.processes import free_port
from tests.support.waiting import wait_until

HERE = Path(__file__).parent / "languages"
JARS = Path("/usr/share/java")
NEEDED_JARS = [
    *(
        JARS / f"{name}.jar"
        for name in ("grpc-api", "grpc-context", "grpc-core", "grpc-netty", "guava", "perfmark-api")
    ),
    *JARS.glob("netty-*.jar"),
]

#: What each runs with, and what is to be there for it.
CLIENTS = {
    "grpc-js": (
        ["node", str(HERE / "grpc_js.cjs"), str(ENVIRONMENT / "node")],
        ENVIRONMENT / "node/node_modules/@grpc",
    ),
    "grpc-java": (
        ["java", "-cp", ":".join(map(str, NEEDED_JARS)), str(HERE / "GrpcJava.java")],
        JARS / "grpc-netty.jar",
    ),
}

PREDICT = "/tensorflow.serving.PredictionService/Predict"
#: Numbers of a longer message, which may wait in the queue with all others.
LARGE = 2000

NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors; worker_rlimit_nofile 4000;
events {{ worker_connections 1000; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    upstream ferry {{ server {grpc}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{port} http2; client_max_body_size 64m; http2_max_concurrent_streams 1000;
        location / {{ grpc_pass grpc://ferry; grpc_read_timeout 60s; }}
    }}
}}
"""


@pytest.mark.parametrize("client", CLIENTS)
def test_every_call_gets_its_own_answer(live: Live, tmp_path: Path, client: str) -> None:
    assert_answers(asked(client, live.grpc, tmp_path))


def test_calls_through_nginx(live: Live, tmp_path: Path) -> None:
    with nginx(live.grpc, tmp_path) as address:
        assert_answers(asked("grpc-js", address, tmp_path))


@contextmanager
def nginx(grpc: str, folder: Path) -> Iterator[str]:
    """Its address; it passes on to `grpc`."""
    tool = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if tool is None:
        skip_loudly("nginx is missing: gRPC behind a proxy is NOT tried. Install it: .ci/packages")
    port = free_port()
    (folder / "conf").write_text(NGINX.format(folder=folder, grpc=grpc, port=port))
    process = subprocess.Popen([tool, "-c", str(folder / "conf"), "-e", str(folder / "errors")])
    try:
        wait_until((folder / "pid").exists, "nginx does not start")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def asked(client: str, address: str, folder: Path) -> list[str]:
    """200 calls of a number each, and then those of `assert_answers`, all under way at once."""
    command, needed = CLIENTS[client]
    if not shutil.which(command[0]) or not needed.exists():
        skip_loudly(f"{client} is NOT tried, for it is missing. Install it: .ci/packages, make clients")
    numbers = [predict(np.array([number], np.float32)) for number in range(200)]
    others = [predict(np.arange(LARGE, dtype=np.float32)), predict(np.zeros(1, np.float32), "nobody")]
    lines = [f"unary {PREDICT} {each.hex()}" for each in [*numbers, *others]]
    lines += ["unary /tensorflow.serving.PredictionService/Nothing", "first /grpc.health.v1.Health/Watch"]
    file = folder / "calls"
    file.write_text("\n".join(lines))
    return run([*command, address, str(file)], {}).splitlines()


def predict(numbers: Any, model: str = "half_plus_two") -> bytes:
    content: bytes = predict_request({"x": numbers}, spec(model)).SerializeToString()
    return content


def assert_answers(lines: list[str]) -> None:
    assert [numbers_of(each) for each in lines[:200]] == [[number / 2 + 2] for number in range(200)]
    assert numbers_of(lines[200])[-1] == (LARGE - 1) / 2 + 2
    assert lines[201].startswith("NOT_FOUND ")
    assert "nobody" in lines[201]
    assert lines[202].startswith("UNIMPLEMENTED ")
    assert lines[203] == "OK 0801"  # SERVING


def numbers_of(line: str) -> list[float]:
    word, _, content = line.partition(" ")
    assert word == "OK", line
    reply = message_class("tensorflow.serving.PredictResponse").FromString(bytes.fromhex(content))
    numbers: list[float] = outputs_of(reply)["y"].tolist()
    return numbers
