"""Supervisor, frontends and engine as real processes; the model is one in numpy."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.frontends.supervisor import ENGINE, FRONTEND
from tests.every_protocol.models import ENDLESS
from tests.support.processes import KEEP_ALIVE_S, ROOT, ServerProcess, children, has_ended, serving
from tests.support.waiting import HANG_S, wait_until

LIGHT = ("-m", "tests.frontends.numpy_server")
ENGINES = {ENGINE, "tests.frontends.numpy_engine"}
PATH, BODY, ANSWER = "/v1/models/m:predict", {"instances": [[1.0, 2.0]]}, {"predictions": [[2.0, 4.0]]}


def models(folder: Path) -> Path:
    version = folder / "models/m/1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    return folder / "models"


@contextmanager
def light(folder: Path, **settings: object) -> Iterator[ServerProcess]:
    more: dict[str, Any] = {"frontends": 2, "warm_up": False, "poll_interval_s": 0, **settings}
    with serving(models(folder), folder / "log", LIGHT, **more) as server:
        yield server


def parent_of_engine(server: ServerProcess) -> int:
    return next(number for number, module in children(server.process.pid).items() if module in ENGINES)


def engine_of(server: ServerProcess) -> int:
    (engine,) = children(parent_of_engine(server))
    return engine


def frontends_of(server: ServerProcess) -> list[int]:
    return [number for number, module in children(server.process.pid).items() if module == FRONTEND]


class Clients:
    """Each posts on a connection of its own, 50 times a second at most, until told to stop or cut off.

    A connection that was idle for the server's keep-alive time may be closed: this machine was busy, and the client
    opens another one. The idle time is counted from the sending of the request before, so never too short.
    """

    def __init__(self, url: str, count: int) -> None:
        self.codes: list[int] = []
        self.answers: set[str] = set()
        self.ports: set[int] = set()
        self.cut_off: list[int] = []
        self.no_retry_after = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(url,)) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, url: str) -> None:
        port, asked_s = 0, time.monotonic()

        def note_port(reply: httpx.Response) -> None:
            nonlocal port  # while the reply is read its connection is open for certain
            self.ports.discard(port)
            _, port = reply.extensions["network_stream"].get_extra_info("client_addr")
            self.ports.add(port)

        with httpx.Client(base_url=url, timeout=HANG_S, event_hooks={"response": [note_port]}) as client:
            while not self._stop.is_set():
                before_s, asked_s = asked_s, time.monotonic()
                try:
                    reply = client.post(PATH, json=BODY)
                except httpx.TransportError:
                    if time.monotonic() - before_s >= KEEP_ALIVE_S:
                        continue
                    self.cut_off.append(port)
                    return
                if reply.status_code == 200:
                    self.answers.add(reply.text)
                else:
                    self.no_retry_after += "retry-after" not in reply.headers
                self.codes.append(reply.status_code)
                self._stop.wait(0.02)  # a process that is started again needs a core, too

    def see(self, code: int, times: int = 1) -> None:
        """Waits until that many more of them came."""
        seen = self.codes.count(code)
        wait_until(lambda: self.codes.count(code) >= seen + times)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(HANG_S)


@contextmanager
def supervisor_stopped(server: ServerProcess) -> Iterator[None]:
    """Nothing is started again until the block ends."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_a_killed_frontend_hurts_only_its_own_clients(tmp_path: Path) -> None:
    with light(tmp_path, wait_for_models=True) as server:  # a frontend listens when it knows the models
        clients = Clients(server.url, 32)
        clients.see(200, 300)
        wait_until(lambda: len(clients.ports) == 32)
        victim, other = frontends_of(server)
        others = {port for port, number in server.processes_behind(clients.ports.copy()).items() if number == other}
        assert others
        with supervisor_stopped(server):
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: has_ended(victim))
            for _ in range(8):  # no new connection goes to the frontend that is away
                assert httpx.post(server.url + PATH, json=BODY, timeout=HANG_S).json() == ANSWER
        wait_until(lambda: len(set(frontends_of(server)) - {victim}) == 2)
        clients.see(200, 100)
        server.wait_for_frontends(2)
        assert httpx.post(server.url + PATH, json=BODY, timeout=HANG_S).json() == ANSWER
        clients.stop()
        assert set(clients.codes) == {200}
        assert clients.answers == {json.dumps(ANSWER, separators=(",", ":"))}
        assert others.isdisjoint(clients.cut_off)
        assert other in frontends_of(server)
        assert "was ended by SIGKILL; restart 1" in server.log.read_text()


def test_a_killed_engine_is_told_as_503_and_comes_back(tmp_path: Path) -> None:
    with light(tmp_path) as server:
        clients = Clients(server.url, 8)
        clients.see(200, 100)
        with supervisor_stopped(server):
            os.kill(engine_of(server), signal.SIGKILL)
            server.wait_for("/readyz", 503)
            assert server.client.get("/livez").json()["status"] == "ok"
            assert server.client.get("/metrics").status_code == 503
            wait_until(lambda: 503 in clients.codes)
        server.wait_for("/readyz", 200)
        clients.see(200, 100)
        clients.stop()
        assert set(clients.codes) == {200, 503}
        assert (clients.cut_off, clients.no_retry_after) == ([], 0)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for tests after which its engine serves again."""
    with light(tmp_path_factory.mktemp("restarted"), frontends=1) as server:
        yield server


def test_an_engine_that_is_killed_twice_in_a_row_is_forked_anew_by_the_same_parent(restarted: ServerProcess) -> None:
    """So TensorFlow is not imported anew, which takes seconds."""
    parent, killed = parent_of_engine(restarted), set()
    for _ in range(2):
        killed.add(engine_of(restarted))
        os.kill(engine_of(restarted), signal.SIGKILL)
        wait_until(lambda: set(children(parent)) - killed)
        wait_until(lambda: restarted.client.post(PATH, json=BODY).status_code == 200)
    assert parent_of_engine(restarted) == parent


def test_an_engine_ends_with_its_parent_and_both_come_back(restarted: ServerProcess) -> None:
    parent, engine = parent_of_engine(restarted), engine_of(restarted)
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: has_ended(engine))
    wait_until(lambda: restarted.client.post(PATH, json=BODY).status_code == 200)
    assert parent_of_engine(restarted) != parent
    assert "The engine" in restarted.log.read_text()


def test_a_stopped_engine_is_told_in_seconds_and_deadlines_hold(restarted: ServerProcess) -> None:
    engine = engine_of(restarted)
    os.kill(engine, signal.SIGSTOP)
    try:
        late = restarted.client.post(PATH, json=BODY, headers={"X-Request-Timeout-Ms": "300"})
        assert late.status_code == 504
        restarted.wait_for("/readyz", 503)
        assert "The engine has sent nothing for" in restarted.client.get("/readyz").text
        assert restarted.client.get("/livez").status_code == 200
        assert restarted.client.get("/metrics").status_code == 503
        assert restarted.client.get("/health").json()["status"] == "not ready"
    finally:
        os.kill(engine, signal.SIGCONT)
    restarted.wait_for("/readyz", 200)
    assert restarted.client.post(PATH, json=BODY).json() == ANSWER


@pytest.fixture(scope="module")
def left_whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for tests that kill no process."""
    with light(tmp_path_factory.mktemp("served")) as server:
        yield server


def test_metrics_are_those_of_all_frontends_at_once(left_whole: ServerProcess) -> None:
    server = left_whole
    bodies = [json.dumps(BODY).encode()] * 16
    asyncio.run(server.post_all_at_once(PATH, bodies, rounds=3))
    labels = 'code="200",model="m",protocol="tensorflow_rest",signature="serving_default",version="1"'
    for _ in range(4):
        with httpx.Client(base_url=server.url, timeout=HANG_S) as client:
            assert f"ferry_requests_total{{{labels}}} 48.0" in client.get("/metrics").text
            statistics = client.get("/v2/models/m/stats").json()["model_stats"][0]
            assert statistics["inference_stats"]["success"]["count"] == 48


def test_both_frontends_take_connections(left_whole: ServerProcess) -> None:
    server = left_whole
    host, port = server.url.removeprefix("http://").split(":")
    streams = [socket.create_connection((host, int(port))) for _ in range(32)]
    for stream in streams:
        stream.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert stream.recv(4096).startswith(b"HTTP/1.1 200")
    taken_by = server.processes_behind(stream.getsockname()[1] for stream in streams)
    for stream in streams:
        stream.close()
    assert set(taken_by.values()) == set(frontends_of(server))  # dealt out by a hash: all to one is 1 in 2^31


def test_no_command_line_of_a_child_holds_a_setting(left_whole: ServerProcess) -> None:
    words = {
        word
        for child in children(left_whole.process.pid)
        for word in Path(f"/proc/{child}/cmdline").read_text().split("\0")
    }
    assert words == {"", sys.executable, "-P", "-m", FRONTEND, *ENGINES - {ENGINE}}


def test_processes_end_when_the_supervisor_was_killed(tmp_path: Path) -> None:
    with light(tmp_path) as server:
        orphans = [*children(server.process.pid), engine_of(server)]
        server.process.kill()
        server.process.wait(HANG_S)
        wait_until(lambda: all(map(has_ended, orphans)))
        assert server.log.read_text().count("Draining") == 3


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with light(tmp_path) as server:
        parent = parent_of_engine(server)
        server.terminate()
        wait_until(lambda: server.log.read_text().count("Draining") == 3)
        server.terminate()
        assert server.wait() == 0  # there was nothing left to answer
        assert has_ended(parent)


@contextmanager
def endless_work(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with one request under way that never ends, and three that wait."""
    endless: dict[str, Any] = {
        "max_batch_size": 1,
        "max_inline_ms": 0,
        "row_independence": '{"m": "assume"}',
        "drain_timeout_s": HANG_S,
        "request_timeout_ms": 1e3 * HANG_S,
    }
    with light(tmp_path, **endless) as server, ExitStack() as stack:
        body = json.dumps({"instances": [[ENDLESS, 1.0]]}).encode()
        for _ in range(4):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(
                b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(body)) + body
            )
        wait_until(lambda: server.client.get("/health").json()["queue"]["rows"] == 3)
        yield server


def test_a_second_signal_drops_what_is_under_way_and_says_so(tmp_path: Path) -> None:
    """By the exit code and in the log, where no stack trace is."""
    with endless_work(tmp_path) as server:
        server.terminate()
        wait_until(lambda: server.log.read_text().count("Draining") == 3)
        server.terminate()
        assert server.wait() == 1
        log = server.log.read_text()
        assert "Told to end at once: what is not answered yet is dropped; 3 rows wait" in log
        assert "Traceback" not in log


def test_a_signal_that_is_sent_to_all_processes_drops_nothing(tmp_path: Path) -> None:
    """As a service manager does: each child then gets it twice, since the supervisor passes it on."""
    with endless_work(tmp_path) as server:
        server.terminate()
        wait_until(lambda: server.log.read_text().count("Draining") == 3)
        for process in [*children(server.process.pid), engine_of(server)]:
            os.kill(process, signal.SIGTERM)
        for _ in range(2):  # of both frontends, as they take turns
            assert server.client.get("/health").json()["queue"]["rows"] == 3
        assert "Told to end at once" not in server.log.read_text()
        server.terminate()
        assert server.wait() == 1


def test_an_engine_that_cannot_start_ends_it_all(tmp_path: Path) -> None:
    (tmp_path / "models/broken/1").mkdir(parents=True)
    (tmp_path / "models/broken/1/saved_model.pb").touch()
    settings: dict[str, Any] = {"frontends": 1, "wait_for_models": True}
    with serving(tmp_path / "models", tmp_path / "log", LIGHT, ready=False, **settings) as server:
        assert server.wait() == 1
    assert "Failed to start server. Error: Model broken version 1 failed to load" in (tmp_path / "log").read_text()


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, *LIGHT]
        environment = {"FERRY_FRONTENDS": "1", "FERRY_HOST": "127.0.0.1", "FERRY_REST_PORT": str(port)}
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert f"HTTP cannot listen on 127.0.0.1, port {port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    with serving(tmp_path, tmp_path / "log", LIGHT, ready=False, frontends=1, allow_shared_memory=True) as server:
        assert server.wait() != 0
    assert "FERRY_FRONTENDS is '1', but should be 0" in (tmp_path / "log").read_text()
