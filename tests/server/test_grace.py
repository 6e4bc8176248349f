"""`drain_grace_s` in processes: what a server does between SIGTERM and its drain, in one process and with frontends."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.frontends.test_processes import engine_of
from tests.frontends.test_processes import models as models_in
from tests.support.processes import ARRANGEMENTS, ServerProcess, serving
from tests.support.waiting import HANG_S

PROGRAMS = {0: ("-m", "tests.server.numpy_process"), 2: ("-m", "tests.frontends.numpy_server")}

#: Longer than a test waits for anything.
LONGEST_S = 3600.0

PATH, BODY = "/v1/models/m:predict", json.dumps({"instances": [[1.0, 2.0]]})
ANSWER = {"predictions": [[2.0, 4.0]]}

in_every_arrangement = pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())


@contextmanager
def patient(folder: Path, frontends: int, grace_s: float) -> Iterator[ServerProcess]:
    settings = {"frontends": frontends, "warm_up": False, "poll_interval_s": 0, "drain_grace_s": grace_s}
    with serving(models_in(folder), folder / "log", PROGRAMS[frontends], **settings) as server:
        yield server


def ask(connection: http.client.HTTPConnection) -> tuple[int, object, bool]:
    """Status, body, and whether the connection closes."""
    connection.request("POST", PATH, BODY)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read()), reply.will_close


@in_every_arrangement
def test_it_serves_on_until_a_second_signal(frontends: int, tmp_path: Path) -> None:
    with patient(tmp_path, frontends, LONGEST_S) as server:
        kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
        assert ask(kept) == (200, ANSWER, False)
        server.terminate()

        # 1. It is not ready, and says why; who is connected is answered and told to go; so is who comes.
        server.wait_for("/readyz", 503)
        assert "The server was told to end" in server.client.get("/readyz").text
        assert server.client.get("/livez").status_code == 200
        assert ask(kept) == (200, ANSWER, True)
        for _ in range(8):
            with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)) as new:
                assert ask(new) == (200, ANSWER, True)

        # 2. An engine that dies now is not started again: its frontends say 503, and the exit code tells.
        if frontends:
            os.kill(engine_of(server), signal.SIGKILL)
            server.wait_for("/v1/models/m", 503)

        # 3. A second signal waits for nothing.
        server.terminate()
        assert server.wait() == (1 if frontends else 0)


def test_ctrl_c_at_the_supervisor_does_not_wait(tmp_path: Path) -> None:
    with patient(tmp_path, 2, LONGEST_S) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 0
        assert "told to end" not in server.log.read_text().lower()
