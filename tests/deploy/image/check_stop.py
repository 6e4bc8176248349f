"""`docker stop` under load: whoever is connected is answered until told to go, over HTTP and gRPC.

STOP_REQUESTS=100000 .ci/docker      with so many requests of each protocol before the stop
"""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import grpc
import numpy as np

from tests.deploy.image.container import START_S, Container, digit, eventually, running
from tests.support.grpc_live import PREDICTION, predict_request, spec
from tests.support.waiting import HANG_S

#: Of each protocol.
CLIENTS = 4
#: Of each protocol, before the stop.
REQUESTS = int(os.environ.get("STOP_REQUESTS", "200"))
#: As docs/deploy.md says: the times of the grace and the drain, and 22 s for the rest.
STOP_S = 55


def over_http(container: Container, asked: Callable[[], None]) -> None:
    """Asks on one connection until the server tells it to go elsewhere; calls `asked` after each answer."""
    body = json.dumps({"instances": [digit()["image"]]})
    with closing(http.client.HTTPConnection("127.0.0.1", container.port, timeout=HANG_S)) as connection:
        told_to_go = False
        while not told_to_go:
            connection.request("POST", "/v1/models/digits:predict", body)
            reply = connection.getresponse()
            told_to_go = reply.will_close
            assert reply.status == 200, reply.read()
            reply.read()
            asked()


def over_grpc(container: Container, asked: Callable[[], None]) -> None:
    """As over_http: the end of the connection, which GOAWAY brings, is what tells it."""
    request = predict_request({"image": np.array([digit()["image"]], np.float32)}, spec("digits")).SerializeToString()
    was_ready, told_to_go = threading.Event(), threading.Event()

    def changed(state: grpc.ChannelConnectivity) -> None:
        if state is grpc.ChannelConnectivity.READY:
            was_ready.set()
        elif was_ready.is_set():
            told_to_go.set()

    of_its_own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{container.grpc_port}", options=of_its_own) as channel:
        channel.subscribe(changed)
        while not told_to_go.is_set():
            channel.unary_unary(f"/{PREDICTION}/Predict")(request, timeout=HANG_S)
            asked()
        channel.unsubscribe(changed)  # else its thread may look at a channel that is closed, and raises


def test_a_stop_under_load_fails_no_request() -> None:
    counted = {ask: threading.Semaphore(0) for ask in (over_http, over_grpc)}
    with running() as container, ThreadPoolExecutor(2 * CLIENTS) as pool:
        eventually(container.is_ready, START_S)
        clients = [pool.submit(ask, container, counted[ask].release) for ask in counted for _ in range(CLIENTS)]
        for asked in counted.values():
            for _ in range(REQUESTS):
                assert asked.acquire(timeout=HANG_S)
        assert not any(each.done() for each in clients)
        container.stop(STOP_S)
        failed: list[Any] = [error for each in clients if (error := each.exception(HANG_S))]
        assert failed == []
        assert (container.state("ExitCode"), container.state("OOMKilled")) == ("0", "false")
