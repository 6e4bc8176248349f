"""`drain_grace_s` of frontends that serve gRPC, in real processes: no call is rejected or lost."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.frontends.test_grpc_processes import ANSWER, CONNECTIONS, clients_of
from tests.frontends.test_processes import LIGHT, models
from tests.support.processes import free_port, serving
from tests.support.waiting import HANG_S, wait_until

#: Short: the clients send all the time.
GRACE_S = 0.3


def test_calls_are_answered_until_nobody_can_connect(tmp_path: Path) -> None:
    """A call that a frontend or the engine rejected would say that the server is shutting down."""
    settings = {"frontends": 2, "warm_up": False, "poll_interval_s": 0, "wait_for_models": True}
    more = {"grpc_port": free_port(), "drain_grace_s": GRACE_S}
    with serving(models(tmp_path), tmp_path / "log", LIGHT, **settings, **more) as server, ExitStack() as stack:
        server.grpc_port = more["grpc_port"]  # type: ignore[attr-defined] - for these tests
        clients = clients_of(server, stack)
        threads = [threading.Thread(target=client.predict_until_rejected) for client in clients]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(client.counted[ANSWER] >= 2 for client in clients))
        server.terminate()
        for thread in threads:
            thread.join(HANG_S)
        assert server.wait() == 0
        counted = sum((client.counted for client in clients), Counter[str]())
        refused = {text: number for text, number in counted.items() if text != ANSWER}
        assert all(text.startswith("UNAVAILABLE: failed to connect to all addresses") for text in refused), refused
        assert sum(refused.values()) == CONNECTIONS
