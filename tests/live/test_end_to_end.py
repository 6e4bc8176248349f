"""The main job on real input: a real process, the shipped models, many clients at once."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.core.batch_sizes import MOST_DELAY_MS
from tests.support.processes import ARRANGEMENTS, KEEP_ALIVE_S, ROOT, ServerProcess, children, serving
from tests.support.savedmodels import SLOW_STEPS_A_SECOND, make_half_plus_two, make_poison, make_slow
from tests.support.waiting import HANG_S

SAMPLES = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"]


in_every_arrangement = pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())


@pytest.fixture(scope="module", params=ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(ROOT / "models/digits/1", folder / "models/digits/1")
    shutil.copytree(ROOT / "models/text/1", folder / "models/text/1")
    make_poison(folder / "models/poison/1")
    settings = {"default_model": "digits", "execution_variant": "auto", "frontends": request.param}
    with serving(folder / "models", folder / "log", **settings) as server:
        yield server


def predict(server: ServerProcess, instances: list[object]) -> list[list[float]]:
    reply = server.client.post("/v1/models/digits:predict", json={"instances": instances})
    assert reply.status_code == 200, reply.text
    predictions: list[list[float]] = reply.json()["predictions"]
    return predictions


def test_digits_are_recognised(server: ServerProcess) -> None:
    predictions = predict(server, [{"image": sample["image"]} for sample in SAMPLES])
    right = sum(int(np.argmax(row)) == sample["label"] for row, sample in zip(predictions, SAMPLES, strict=True))
    assert right >= 0.97 * len(SAMPLES)


def test_the_readmes_curl_gets_the_readmes_answer(server: ServerProcess) -> None:
    readme = (ROOT / "README.md").read_text()
    path, body = re.findall(r"curl -s localhost:8501(\S+) -d '([^']+)'", readme)[0]
    (answer,) = re.findall(r'^{"predictions":.*}$', readme, re.MULTILINE)
    reply = server.client.post(path, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    np.testing.assert_allclose(reply.json()["predictions"], json.loads(answer)["predictions"], rtol=1e-3, atol=1e-6)
    assert int(np.argmax(reply.json()["predictions"])) == 7


def test_the_short_route_serves_the_default_model(server: ServerProcess) -> None:
    reply = server.client.post("/predict", json={"instances": [SAMPLES[0]["image"]]})
    np.testing.assert_allclose(reply.json()["predictions"], predict(server, [SAMPLES[0]["image"]]), rtol=1e-4)


def test_64_clients_at_once_each_get_their_own_answer(server: ServerProcess) -> None:
    alone = [predict(server, [sample["image"]])[0] for sample in SAMPLES]
    bodies = [json.dumps({"instances": [sample["image"]]}).encode() for sample in SAMPLES]
    labels = '{model="digits",signature="serving_default",version="1"}'
    before = server.metrics()
    rounds = asyncio.run(server.post_all_at_once("/v1/models/digits:predict", bodies, rounds=10))
    after = server.metrics()
    for replies in rounds:
        answers = [json.loads(body)["predictions"][0] for status, body in replies if status == 200]
        np.testing.assert_allclose(answers, alone, rtol=1e-4, atol=1e-6)
    rows = after[f"ferry_batch_rows_sum{labels}"] - before[f"ferry_batch_rows_sum{labels}"]
    batches = after[f"ferry_batch_rows_count{labels}"] - before[f"ferry_batch_rows_count{labels}"]
    assert rows == 10 * len(SAMPLES) == 640
    assert 0 < batches <= rows


def family(process: int) -> Iterator[int]:
    yield process
    for child in children(process):
        yield from family(child)


@contextmanager
def stopped(server: ServerProcess) -> Iterator[None]:
    """All its processes stand still during the block."""
    processes = list(family(server.process.pid))
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def test_64_requests_that_have_arrived_share_calls_of_eight_rows_at_least(server: ServerProcess) -> None:
    """A budget of counts: the server stands still while all arrive, so no machine's load decides how many meet."""
    body, labels = (
        json.dumps({"instances": [SAMPLES[0]["image"]]}),
        '{model="digits",signature="serving_default",version="1"}',
    )
    with ExitStack() as opened:
        clients = [
            opened.enter_context(closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)))
            for _ in range(64)
        ]

        def send() -> None:
            for client in clients:
                client.request("POST", "/v1/models/digits:predict", body)

        def statuses() -> list[int]:
            replies = [client.getresponse() for client in clients]
            return [reply.status for reply in replies if reply.read()]

        send()  # so all connections are accepted, and kept
        assert statuses() == [200] * 64
        before = server.metrics()
        with stopped(server):
            send()
        assert statuses() == [200] * 64
    after = server.metrics()
    rows, batches = (
        after[f"ferry_batch_rows_{each}{labels}"] - before[f"ferry_batch_rows_{each}{labels}"]
        for each in ("sum", "count")
    )
    assert rows == 64
    assert rows / batches >= 8


def test_one_poisoned_request_of_32_fails_alone(server: ServerProcess) -> None:
    bodies = [json.dumps({"instances": [-1.0 if value == 13 else value]}).encode() for value in range(32)]
    for replies in asyncio.run(server.post_all_at_once("/v1/models/poison:predict", bodies, rounds=5)):
        for value, (status, body) in enumerate(replies):
            if value == 13:
                assert status == 400
                assert list(json.loads(body)) == ["error"]
            else:
                assert (status, json.loads(body)) == (200, {"predictions": [2.0 * value]})


def test_documents_name_the_models_inputs(server: ServerProcess) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]
    assert "image" in json.dumps(paths["/v1/models/digits:predict"])
    assert server.client.get("/docs").status_code == 200


def test_health_pages(server: ServerProcess) -> None:
    assert server.client.get("/livez").json()["status"] == "ok"
    assert server.client.get("/readyz").json()["status"] == "ok"
    summary = server.client.get("/health").json()
    assert summary["status"] == "ready"
    assert summary["models"]["digits"] == [{"version": 1, "state": "AVAILABLE", "error": ""}]
    assert "ferry_request_seconds_bucket" in server.client.get("/metrics").text


def test_an_unknown_page_is_a_clear_404(server: ServerProcess) -> None:
    reply = server.client.get("/nothing")
    assert reply.status_code == 404
    assert reply.json() == {"error": "Not Found: GET /nothing. See /docs for what there is"}


def test_uvicorn_serves_the_application_too_and_64_clients_share_full_batches(tmp_path: Path) -> None:
    """Batches wait until they are full: how many requests meet otherwise depends on the machine's load."""
    shutil.copytree(ROOT / "models/digits/1", tmp_path / "models/digits/1")
    command = ("-m", "uvicorn", "app.main:app", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning")
    page, waiting = "/v1/models/digits/batching", {"max_batch_size": 16, "max_batch_delay_ms": MOST_DELAY_MS}
    bodies = [json.dumps({"instances": [sample["image"]]}).encode() for sample in SAMPLES]
    settings = {"model_control": "explicit", "batches_in_flight": 1, "request_timeout_ms": 1000 * HANG_S}
    with serving(tmp_path / "models", tmp_path / "log", command, **settings) as server:
        assert int(np.argmax(predict(server, [SAMPLES[0]["image"]])[0])) == SAMPLES[0]["label"]
        options = server.client.patch(page, json=waiting).json()
        assert options == options | waiting
        (replies,) = asyncio.run(server.post_all_at_once("/v1/models/digits:predict", bodies, rounds=1))
        assert [status for status, _ in replies] == [200] * len(SAMPLES)
        signatures = server.client.get(page).json()["versions"][0]["signatures"]
        assert {"full": len(SAMPLES) / 16} in [each["closed_by"] for each in signatures]
        server.terminate()
        server.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()


class Load:
    """Clients that post without a pause until told to stop, or that their connection closes; every answer is kept.

    A connection that was idle for the server's keep-alive time may be closed: this machine was busy, and the client
    opens another one. The idle time is counted from the sending of the request before, so never too short.
    """

    def __init__(self, url: str, path: str, body: object, clients: int) -> None:
        self.replies: list[tuple[int, str]] = []
        self.broken: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(url, path, body)) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _run(self, url: str, path: str, body: object) -> None:
        asked_s = time.monotonic()
        with httpx.Client(base_url=url, timeout=HANG_S) as client:
            while not self._stop.is_set():
                before_s, asked_s = asked_s, time.monotonic()
                try:
                    reply = client.post(path, json=body)
                    self.replies.append((reply.status_code, reply.text))
                    if reply.headers.get("connection") == "close":
                        return
                except httpx.TransportError as error:
                    if time.monotonic() - before_s >= KEEP_ALIVE_S:
                        continue
                    self.broken.append(repr(error))
                    return

    def stop(self) -> None:
        self._stop.set()
        self.wait_for_the_end()

    def wait_for_the_end(self) -> None:
        """Returns when every client was told that its connection closes, or was cut off."""
        for thread in self._threads:
            thread.join(HANG_S)

    def wait_for_replies(self, count: int) -> None:
        while len(self.replies) < count and any(thread.is_alive() for thread in self._threads):
            self._stop.wait(0.01)


@in_every_arrangement
def test_a_new_version_takes_over_under_load_without_a_failed_request(frontends: int, tmp_path: Path) -> None:
    models = tmp_path / "models"
    make_half_plus_two(models / "half/1")
    with serving(models, tmp_path / "log", poll_interval_s=0.1, frontends=frontends) as server:
        load = Load(server.url, "/v1/models/half:predict", {"instances": [2.0]}, clients=8)
        load.wait_for_replies(50)
        make_half_plus_two(tmp_path / "made/2")
        (tmp_path / "made/2").rename(models / "half/2")
        server.wait_for("/v1/models/half/versions/2/metadata", 200)
        load.wait_for_replies(len(load.replies) + 50)
        server.wait_for("/v1/models/half/versions/1:predict", 400)  # GET is malformed; the process lives
        load.stop()
        statuses = server.client.get("/v1/models/half").json()["model_version_status"]
        assert {status["version"]: status["state"] for status in statuses}["2"] == "AVAILABLE"
        assert load.broken == []
        assert set(load.replies) == {(200, '{"predictions":[3.0]}')}


@in_every_arrangement
def test_sigterm_under_load_loses_no_request(frontends: int, tmp_path: Path) -> None:
    """Every client is told by the head of an answer that it goes elsewhere, and none is rejected."""
    models = tmp_path / "models"
    make_slow(models / "slow/1")
    patience = {"request_timeout_ms": 1e3 * HANG_S, "drain_timeout_s": HANG_S, "drain_grace_s": HANG_S}
    with serving(models, tmp_path / "log", frontends=frontends, **patience) as server:
        body = {"instances": [max(1, SLOW_STEPS_A_SECOND // 10)]}
        load = Load(server.url, "/v1/models/slow:predict", body, clients=16)
        load.wait_for_replies(32)
        server.terminate()
        load.wait_for_the_end()
        server.terminate()  # the grace ends at once, and there is nothing left to answer
        assert server.wait() == 0
        assert len(load.replies) >= 32 + 16
        assert {code for code, _ in load.replies} == {200}
        assert load.broken == []


@in_every_arrangement
def test_a_terminated_server_that_still_loads_exits_at_once(frontends: int, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "models/digits/1", tmp_path / "models/digits/1")
    with serving(tmp_path / "models", tmp_path / "log", ready=False, frontends=frontends) as server:
        server.wait_for("/livez", 200)
        assert server.client.get("/readyz").status_code == 503
        server.terminate()
        assert server.wait() == 0
