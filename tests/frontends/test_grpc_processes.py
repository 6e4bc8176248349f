"""gRPC of frontends as real processes, on both engines; the model is one in numpy."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import grpc
import numpy as np
import pytest

from app.codecs.protobuf.messages import message_class
from tests.frontends.test_processes import LIGHT, models, supervisor_stopped
from tests.support.processes import ServerProcess, children, free_port, has_ended, serving
from tests.support.tensor_protos import encode_tensor
from tests.support.waiting import HANG_S, wait_until

PREDICT = "/tensorflow.serving.PredictionService/Predict"

#: More than two connections would each be of the same frontend once in 2^15 runs.
CONNECTIONS = 16

ANSWER = "[2.0, 4.0]"


class Client:
    """A client with a connection of its own."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self._predict = self._channel.unary_unary(PREDICT)
        message = message_class("tensorflow.serving.PredictRequest")(model_spec={"name": "m"})
        encode_tensor(np.array([[1, 2]], np.float32), message.inputs["features"], True)
        self._message = message.SerializeToString()
        self.counted = Counter[str]()

    def predict(self, wait: bool = False) -> list[float]:
        """What the model gives for 1 and 2. Raises RpcError."""
        content = self._predict(self._message, timeout=HANG_S, wait_for_ready=wait)
        reply = message_class("tensorflow.serving.PredictResponse").FromString(content)
        return np.frombuffer(reply.outputs["doubled"].tensor_content, np.float32).tolist()

    def predict_until_rejected(self) -> None:
        """Counts the answers, and the text of the rejection."""
        try:
            while True:
                self.counted[str(self.predict())] += 1
        except grpc.RpcError as error:
            self.counted[f"{error.code().name}: {error.details()}"] += 1  # type: ignore[attr-defined] # no types

    def close(self) -> None:
        self._channel.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`grpc_port` and `unix_socket` say where; its tests end it."""
    folder = tmp_path_factory.mktemp("served")
    more: dict[str, Any] = {
        "frontends": 2,
        "warm_up": False,
        "poll_interval_s": 0,
        "wait_for_models": True,  # a frontend listens when it knows the models
        "grpc_port": free_port(),
        "grpc_unix_socket": folder / "socket",
        "drain_timeout_s": HANG_S,
        "request_timeout_ms": 1e3 * HANG_S,
    }
    with serving(models(folder), folder / "log", (*LIGHT, "--lingering"), **more) as server:
        server.grpc_port, server.unix_socket = more["grpc_port"], str(folder / "socket")  # type: ignore[attr-defined] - for these tests
        yield server


def frontends_of(server: Any) -> list[int]:
    modules = children(server.process.pid)
    return [number for number, module in modules.items() if module == "tests.frontends.lingering_frontend"]


def clients_of(server: Any, stack: ExitStack) -> list[Client]:
    return [stack.enter_context(closing(Client(f"127.0.0.1:{server.grpc_port}"))) for _ in range(CONNECTIONS)]


def answers(client: Client) -> bool:
    """A call that is sent before the end of its connection is seen ends with it; a later one has another connection."""
    with suppress(grpc.RpcError):
        return client.predict(wait=True) == [2.0, 4.0]
    return False


def test_a_killed_frontend_ends_its_own_connections_only(running: Any) -> None:
    with ExitStack() as stack:
        clients = clients_of(running, stack)
        assert [client.predict() for client in clients] == [[2.0, 4.0]] * CONNECTIONS
        victim, other = frontends_of(running)
        taken = Counter(running.processes_of(running.grpc_port))
        assert taken.keys() == {victim, other}
        assert taken.total() == CONNECTIONS
        with supervisor_stopped(running):
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: has_ended(victim))
            ended = [client for client in clients if not answers(client)]
            assert len(ended) <= taken[victim]
            wait_until(lambda: all(answers(client) for client in ended))
            assert Counter(running.processes_of(running.grpc_port)) == {other: CONNECTIONS}
        wait_until(lambda: len(set(frontends_of(running)) - {victim}) == 2)
        running.wait_for_frontends(2)


def test_one_of_the_frontends_serves_the_unix_socket(running: Any) -> None:
    with closing(Client(f"unix:{running.unix_socket}")) as client:
        assert client.predict(wait=True) == [2.0, 4.0]  # it may have been the one that was killed


def test_the_end_loses_no_call(running: Any) -> None:
    """Each is answered, or rejected with a text that says why."""
    with ExitStack() as stack:
        clients = clients_of(running, stack)
        threads = [threading.Thread(target=client.predict_until_rejected) for client in clients]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(client.counted[ANSWER] >= 2 for client in clients))
        running.terminate()
        for thread in threads:
            thread.join(HANG_S)
        counted = sum((client.counted for client in clients), Counter[str]())
        assert counted.keys() == {ANSWER, "UNAVAILABLE: The server is shutting down"}
        running.terminate()  # it would reject for as long as it takes
        assert running.wait() == 0
