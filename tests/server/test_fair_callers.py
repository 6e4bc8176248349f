"""Two callers over HTTP: how many calls a load test delays another caller by."""

import json
import re
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import httpx
import numpy as np
import pytest

from app import runtime
from app.core.inference import Array, ModelSignature, TensorSpec
from app.server.single_process import serve
from tests.server.test_server import settings
from tests.server.test_single_process import _surroundings, terminate, while_serving  # noqa: F401 - a fixture
from tests.support.fakes import FakeLoadedModel, FakeRuntime
from tests.support.processes import free_port
from tests.support.waiting import HANG_S, wait_until

SHAPES = 8

#: Fewer than there are shapes, and so calls of the load test: after each of them one of its calls is let begin.
ROUNDS = 3


class GatedModel(FakeLoadedModel):
    """Takes rows of any width. As soon as it is gated, each call waits until it is let through."""

    gated = threading.Event()
    let_through = threading.Semaphore(0)
    begun: ClassVar[list[set[float]]] = []  # the values in each gated call

    def __init__(self) -> None:
        super().__init__()
        x = TensorSpec("x", np.dtype(np.float32), (None, None))
        self.signatures = {"serving_default": ModelSignature("serving_default", {"x": x}, {"y": x})}

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        if self.gated.is_set():
            self.begun.append(set(inputs["x"][:, 0].tolist()))
            assert self.let_through.acquire(timeout=HANG_S)
        return {"y": inputs["x"]}


class GatedRuntime(FakeRuntime):
    def load(self, path: Path) -> FakeLoadedModel:
        return GatedModel()


def test_a_load_test_of_many_shapes_delays_another_caller_by_a_call_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Besides the call in flight and the caller's own."""
    monkeypatch.setitem(runtime._REGISTRY, "gated", "tests.server.test_fair_callers:GatedRuntime")
    GatedModel.gated.clear()
    GatedModel.begun.clear()
    port, delays, statuses = free_port(), [], []

    def send(caller: str, value: int, width: int) -> socket.socket:
        body = json.dumps({"instances": [width * [value]]})
        head = f"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nX-Api-Key: {caller}\r\nContent-Length: {len(body)}"
        sent = socket.create_connection(("127.0.0.1", port), HANG_S)
        sent.sendall(f"{head}\r\n\r\n{body}".encode())
        return sent

    def act(client: httpx.Client) -> None:
        def waiting() -> float:
            page = client.get("/metrics").text
            return float(re.search(r"^ferry_queue_rows (\S+)", page, re.MULTILINE)[1])  # type: ignore[index]  # the page has it

        def let_through() -> None:
            calls = len(GatedModel.begun)
            GatedModel.let_through.release()
            wait_until(lambda: len(GatedModel.begun) > calls)

        # 1. Nothing but requests calls the model; a call is in flight, and a load test of many shapes waits.
        wait_until(lambda: not client.get("/health").json()["improving"])
        GatedModel.gated.set()
        sent = [send("load test", 1, 1)]
        wait_until(lambda: len(GatedModel.begun) == 1)
        sent += [send("load test", 1, 1 + number % SHAPES) for number in range(160)]
        wait_until(lambda: waiting() == 160)

        # 2. Another caller sends one request after another; calls are let through until its own has begun.
        for value in range(2, 2 + ROUNDS):
            queued, before = waiting(), len(GatedModel.begun)
            sent.append(send("other", value, SHAPES + 1))
            wait_until(lambda queued=queued: waiting() == queued + 1)  # type: ignore[misc]  # mypy infers no default
            while value not in GatedModel.begun[-1]:
                let_through()
            delays.append(len(GatedModel.begun) - before)
            let_through()  # a call of the load test is what is held meanwhile

        # 3. Everyone is answered.
        GatedModel.gated.clear()
        GatedModel.let_through.release()
        for each in sent:
            statuses.append(each.recv(12))
            each.close()
        terminate()

    thread = while_serving(f"http://127.0.0.1:{port}", act)
    options = {"fair_callers": "header:X-Api-Key", "max_inline_ms": 0, "row_independence": {"m": "assume"}}
    code = serve(settings(tmp_path, "gated", host="127.0.0.1", rest_port=port, **options))
    thread.join(HANG_S)
    assert code == 0
    assert len(delays) == ROUNDS
    assert max(delays) <= 2, delays
    assert set(statuses) == {b"HTTP/1.1 200"}
