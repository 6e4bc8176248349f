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

import httpx
import pytest

from app import runtime
from app.config.settings import Settings
from app.frontends.engine import engine_process
from app.frontends.frontend import frontend_process
from app.frontends.process_arguments import COULD_NOT_START, ProcessArguments
from app.frontends.supervisor import supervise
from app.transports.ports import bind_port
from tests.every_protocol.live import RUNTIME, settings
from tests.frontends.test_processes import ANSWER, BODY, PATH, models
from tests.support.processes import free_port
from tests.support.waiting import HANG_S, wait_until

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


def wait_for(url: str, status: int) -> None:
    def answers() -> bool:
        with suppress(httpx.TransportError):
            return get(url).status_code == status
        return False

    wait_until(answers, f"{url} never answered {status}")


def listener_in(folder: Path) -> int:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "engine"))
    listener.listen()
    return listener.detach()


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


def test_an_engine_drains_and_ends_with_0(tmp_path: Path) -> None:
    grpc = tmp_path / "grpc"

    def act() -> None:
        wait_until(grpc.exists)
        terminate()

    thread = meanwhile(act)
    arguments = ProcessArguments(settings(tmp_path, frontends=1, grpc_unix_socket=str(grpc)), [listener_in(tmp_path)])
    assert engine_process.serve(arguments) == 0
    thread.join(HANG_S)


def test_an_engine_that_cannot_start_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ProcessArguments(settings(tmp_path, frontends=1, grpc_port=port), [listener_in(tmp_path)])
        assert engine_process.serve(arguments) == COULD_NOT_START


def test_a_frontend_without_an_engine_rejects_and_ends_with_its_parent(tmp_path: Path, parent: IO[bytes]) -> None:
    port = bind_port(socket.AF_INET, ("127.0.0.1", 0), shared=True)
    url = f"http://127.0.0.1:{port.getsockname()[1]}"
    replies = []

    def act() -> None:
        wait_for(f"{url}/livez", 200)
        replies.extend([get(f"{url}/readyz"), post(url + PATH), get(f"{url}/metrics")])
        parent.close()

    thread = meanwhile(act)
    arguments = ProcessArguments(settings(tmp_path, frontends=1), [port.detach()], str(tmp_path / "engine"))
    assert frontend_process.main(arguments.dump()) == 0
    thread.join(HANG_S)
    assert [reply.status_code for reply in replies] == [503, 503, 503]
    assert replies[1].headers["retry-after"] == replies[2].headers["retry-after"] == "1"
    assert replies[1].json() == {"error": "Models are still loading"}
