"""`serve` in this very process: signals and all, with a runtime in numpy."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path

import httpx
import pytest

from app import runtime
from app.server.single_process import serve
from tests.server.test_server import HeldLoadRuntime, HeldModel, HeldStartRuntime, settings
from tests.support.processes import free_port
from tests.support.waiting import HANG_S, wait_until

#: What os._exit was called with, instead of leaving.
left_with: list[int] = []


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(runtime._REGISTRY, "fake", "tests.support.fakes:FakeRuntime")
    monkeypatch.setitem(runtime._REGISTRY, "held", "tests.server.test_server:HeldRuntime")
    monkeypatch.setattr("app.transports.http1.uvicorn_adapter._LINGER_S", 0.0)
    monkeypatch.setattr("app.server.http_server.os._exit", left_with.append)
    left_with.clear()
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def while_serving(url: str, act: Callable[[httpx.Client], None]) -> threading.Thread:
    """Acts from another thread as soon as the server is ready."""

    def run() -> None:
        # A new connection for each request: an idle one might be closed by the server just when it is used again.
        limits = httpx.Limits(max_keepalive_connections=0)
        with httpx.Client(base_url=url, timeout=HANG_S, limits=limits) as client:

            def ready() -> bool:
                with suppress(httpx.TransportError):
                    return client.get("/readyz").status_code == 200
                return False

            wait_until(ready)
            act(client)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def terminate(times: int = 1) -> None:
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_ends_it_with_0(tmp_path: Path) -> None:
    port = free_port()
    answers = []

    def act(client: httpx.Client) -> None:
        answers.append(client.post("/predict", json={"instances": [[1, 2]]}).json())
        terminate()

    thread = while_serving(f"http://127.0.0.1:{port}", act)
    assert serve(settings(tmp_path, host="127.0.0.1", rest_port=port)) == 0
    thread.join(HANG_S)
    assert answers == [{"predictions": [[2.0, 4.0]]}]
    assert left_with == []


def test_tls_that_cannot_be_used_ends_the_start_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"tls_certificate": str(tmp_path / "none.crt"), "tls_key": str(tmp_path / "none.key")}
    assert serve(settings(tmp_path, host="127.0.0.1", rest_port=0, **files)) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line.endswith(f"tls_certificate ({tmp_path}/none.crt) cannot be read: No such file or directory")


def test_ctrl_c_has_no_grace(tmp_path: Path) -> None:
    port = free_port()
    thread = while_serving(f"http://127.0.0.1:{port}", lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert serve(settings(tmp_path, host="127.0.0.1", rest_port=port, drain_grace_s=3600.0)) == 0
    thread.join(HANG_S)


def test_a_drain_that_takes_too_long_ends_it_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.transports.http1.uvicorn_adapter.CLOSE_TIMEOUT_S", 0.1)
    HeldModel.release.clear()
    HeldModel.started.clear()
    port, cut_off = free_port(), threading.Event()

    def act(client: httpx.Client) -> None:
        def post() -> None:
            with pytest.raises(httpx.TransportError):
                client.post("/predict", json={"instances": [[1, 2]]})
            cut_off.set()

        poster = threading.Thread(target=post)
        poster.start()
        HeldModel.started.wait(HANG_S)
        terminate()
        poster.join(HANG_S)

    thread = while_serving(f"http://127.0.0.1:{port}", act)
    code = serve(settings(tmp_path, "held", host="127.0.0.1", rest_port=port, drain_timeout_s=0.05))
    HeldModel.release.set()
    thread.join(HANG_S)
    assert code == 1
    assert cut_off.is_set()


def test_a_second_signal_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.transports.http1.uvicorn_adapter._LINGER_S", 3600.0)
    port = free_port()

    def act(client: httpx.Client) -> None:
        terminate()
        while client.get("/readyz").status_code != 503:
            pass
        terminate()

    thread = while_serving(f"http://127.0.0.1:{port}", act)
    assert serve(settings(tmp_path, host="127.0.0.1", rest_port=port)) == 0
    thread.join(HANG_S)


def test_a_second_signal_drops_what_is_under_way_and_says_so(tmp_path: Path) -> None:
    """By its exit code and in the log, where no stack trace is."""
    written = StringIO()  # not `capsys`: where standard error is replaced, absl closes the former one at the end
    HeldModel.release.clear()
    HeldModel.started.clear()
    port, dropped = free_port(), []

    def act(client: httpx.Client) -> None:
        def post() -> None:
            with pytest.raises(httpx.TransportError):
                client.post("/predict", json={"instances": [[1, 2]]})
            dropped.append(1)

        logging.getLogger().addHandler(logging.StreamHandler(written))
        posters = [threading.Thread(target=post) for _ in range(5)]
        for each in posters:
            each.start()
        wait_until(lambda: waiting(client) == 4)
        terminate()
        while client.get("/readyz").status_code != 503:
            pass
        terminate()
        for each in posters:
            each.join(HANG_S)

    thread = while_serving(f"http://127.0.0.1:{port}", act)
    more = {"drain_timeout_s": HANG_S, "max_batch_size": 1, "request_timeout_ms": 1e3 * HANG_S}
    code = serve(settings(tmp_path, "held", host="127.0.0.1", rest_port=port, **more))
    HeldModel.release.set()
    thread.join(HANG_S)
    assert (code, len(dropped)) == (1, 5)
    log = written.getvalue()
    assert "Told to end at once: 5 connections close before their answer is sent" in log
    assert "what is not answered yet is dropped: <Batcher <RequestQueue 4/" in log
    assert "Traceback" not in log


def waiting(client: httpx.Client) -> int:
    rows: int = client.get("/health").json()["queue"]["rows"]
    return rows


def test_a_signal_while_the_runtime_is_imported_ends_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "held_start", "tests.server.test_server:HeldStartRuntime")
    HeldStartRuntime.release.clear()
    port = free_port()

    def act() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=HANG_S) as client:

            def lives() -> bool:
                with suppress(httpx.TransportError):
                    return client.get("/livez").status_code == 200
                return False

            wait_until(lives)
        terminate()

    thread = threading.Thread(target=act)
    thread.start()
    nobody_was_sent = settings(tmp_path, "held_start", host="127.0.0.1", rest_port=port, drain_grace_s=3600.0)
    assert serve(nobody_was_sent) == 0
    assert not HeldStartRuntime.started
    assert left_with == [0]
    HeldStartRuntime.release.set()
    thread.join(HANG_S)


def test_a_server_that_cannot_start_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "missing", "tests.support.fakes:NoSuchRuntime")
    assert serve(settings(tmp_path, "missing", host="127.0.0.1", rest_port=free_port())) == 1


def test_a_port_in_use_ends_it_before_anything_is_started(tmp_path: Path) -> None:
    """An import of the runtime under way would hold up the end, and its messages would bury the reason."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert serve(settings(tmp_path, host="127.0.0.1", rest_port=taken.getsockname()[1])) == 1


def test_a_load_under_way_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "held_load", "tests.server.test_server:HeldLoadRuntime")
    monkeypatch.setattr("app.server.engine._UNLOAD_TIMEOUT_S", 0.01)
    HeldLoadRuntime.release.clear()
    port = free_port()

    def act(client: httpx.Client) -> None:
        (tmp_path / "m" / "2").mkdir()
        (tmp_path / "m" / "2" / "saved_model.pb").touch()
        while "LOADING" not in client.get("/v1/models/m").text:
            pass
        terminate()

    thread = while_serving(f"http://127.0.0.1:{port}", act)
    serve(settings(tmp_path, "held_load", host="127.0.0.1", rest_port=port, poll_interval_s=0.01))
    HeldLoadRuntime.release.set()
    thread.join(HANG_S)
    assert left_with == [0]
