"""Supervisor, engine and frontend, each in this very process: signals and all."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import grpc
import httpx
import pytest

from app import runtime
from app.config.settings import Settings
from app.frontends.channel.messages import HELLO
from app.frontends.channel.shared_memory import create_memory
from app.frontends.engine import engine_process
from app.frontends.frontend import frontend_process
from app.frontends.process_arguments import COULD_NOT_START, ProcessArguments
from app.frontends.supervisor import supervise
from app.transports.ports import bind_port
from tests.every_protocol.live import RUNTIME, settings
from tests.frontends.test_processes import ANSWER, BODY, PATH, models
from tests.support.processes import free_port
from tests.support.waiting import HANG_S, wait_until

PREDICT = "tensorflow.serving.PredictionService/Predict"
STATISTICS = "inference.GRPCInferenceService/ModelStatistics"

#: What os._exit was called with, instead of leaving.
left_with: list[int] = []


@pytest.fixture(autouse=True)
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[bytes]]:
    """The end of standard input that a supervisor would hold."""
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)
    monkeypatch.setattr("app.transports.http1.uvicorn_adapter._LINGER_S", 0.0)
    for each in ("app.server.http_server.os._exit", "app.frontends.engine.engine_process.os._exit"):
        monkeypatch.setattr(each, left_with.append)
    left_with.clear()
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb") as held:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield held
    root.setLevel(level)
    root.handlers[:] = handlers


def meanwhile(act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=HANG_S)


def post(url: str) -> httpx.Response:
    return httpx.post(url, json=BODY, timeout=HANG_S)


def code_of(address: str, method: str) -> grpc.StatusCode:
    """Asked of the model m."""
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(f"/{method}")(b"\x0a\x03\x0a\x01m" if method == PREDICT else b"", timeout=HANG_S)
        except grpc.RpcError as error:
            return error.code()  # type: ignore[attr-defined] # grpc has no types
    return grpc.StatusCode.OK


def wait_for(url: str, status: int) -> None:
    def answers() -> bool:
        with suppress(httpx.TransportError):
            return get(url).status_code == status
        return False

    wait_until(answers, f"{url} never answered {status}")


def listener_in(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "engine"))
    listener.listen()
    return listener


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_supervised_server_serves_and_ends_with_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    answers = []

    def act() -> None:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/readyz", 200)
        answers.append(post(url + PATH).json())
        terminate()

    thread = meanwhile(act)
    values = Settings(
        host="127.0.0.1",
        rest_port=port,
        grpc_port=0,
        models=models(tmp_path),
        warm_up=False,
        frontends=1,
        drain_grace_s=0,
    )
    assert supervise(values, "tests.frontends.numpy_engine") == 0
    thread.join(HANG_S)
    assert answers == [ANSWER]


def test_tls_that_cannot_be_used_starts_no_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"tls_certificate": str(tmp_path / "none.crt"), "tls_key": str(tmp_path / "none.key")}
    assert supervise(Settings(host="127.0.0.1", rest_port=0, grpc_port=0, frontends=1, **files)) == 1
    assert f"tls_certificate ({tmp_path}/none.crt) cannot be read: No such file or directory" in capsys.readouterr().err


def test_a_supervised_server_serves_grpc_alone(tmp_path: Path) -> None:
    port = free_port()
    codes = []

    def act() -> None:
        wait_until(lambda: code_of(f"127.0.0.1:{port}", STATISTICS) is grpc.StatusCode.OK)
        codes.append(code_of(f"127.0.0.1:{port}", PREDICT))
        terminate()

    thread = meanwhile(act)
    values = Settings(
        host="127.0.0.1",
        rest=False,
        grpc_port=port,
        models=models(tmp_path),
        warm_up=False,
        frontends=1,
        drain_grace_s=0,
    )
    assert supervise(values, "tests.frontends.numpy_engine") == 0
    thread.join(HANG_S)
    assert codes in ([grpc.StatusCode.UNAVAILABLE], [grpc.StatusCode.INVALID_ARGUMENT])  # a message without inputs


def test_an_engine_drains_and_ends_with_0(tmp_path: Path) -> None:
    listener = listener_in(tmp_path)

    def act() -> None:
        with socket.socket(socket.AF_UNIX) as frontend:
            frontend.connect(str(tmp_path / "engine"))
            files = [create_memory(), create_memory()]
            socket.send_fds(frontend, [HELLO], files)
            for file in files:
                os.close(file)
            assert frontend.recv(1)  # it serves
            terminate()

    thread = meanwhile(act)
    arguments = ProcessArguments(settings(tmp_path, frontends=1), [listener.detach()])
    assert engine_process.serve(arguments) == 0
    thread.join(HANG_S)


def test_an_engine_that_cannot_start_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, RUNTIME[0], "tests.every_protocol.models:NoSuchRuntime")
    arguments = ProcessArguments(settings(tmp_path, frontends=1), [listener_in(tmp_path).detach()])
    assert engine_process.serve(arguments) == COULD_NOT_START


def test_a_frontend_without_an_engine_rejects_and_ends_with_its_parent(tmp_path: Path, parent: IO[bytes]) -> None:
    port = bind_port(socket.AF_INET, ("127.0.0.1", 0), shared=True)
    url = f"http://127.0.0.1:{port.getsockname()[1]}"
    replies: list[httpx.Response] = []
    codes: list[grpc.StatusCode] = []

    def act() -> None:
        wait_for(f"{url}/livez", 200)
        replies.extend([get(f"{url}/readyz"), post(url + PATH), get(f"{url}/metrics")])
        codes.extend([code_of(address, method) for method in (PREDICT, STATISTICS)])
        parent.close()

    thread = meanwhile(act)
    grpc_port = bind_port(socket.AF_INET, ("127.0.0.1", 0), shared=True)
    address = f"127.0.0.1:{grpc_port.getsockname()[1]}"
    arguments = ProcessArguments(
        settings(tmp_path, frontends=1),
        [port.detach()],
        str(tmp_path / "engine"),
        grpc_sockets=[grpc_port.detach()],
    )
    assert frontend_process.serve(arguments) == 0
    thread.join(HANG_S)
    assert [reply.status_code for reply in replies] == [503, 503, 503]
    assert replies[1].headers["retry-after"] == replies[2].headers["retry-after"] == "1"
    assert replies[1].json() == {"error": "Models are still loading"}
    assert codes == [grpc.StatusCode.UNAVAILABLE] * 2
