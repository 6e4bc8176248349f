from __future__ import annotations

import gc
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from bench.support.livez_watch import Latency, Watch
from tests.support.waiting import HANG_S


def test_p99_and_the_worst_answer_decide() -> None:
    quick = [0.001] * 990
    assert Latency.of("m", [*quick, *[0.019] * 10], quick).passes
    assert not Latency.of("m", [*quick, *[0.021] * 10], quick).passes
    assert Latency.of("m", [*quick, 0.099], quick).passes
    assert not Latency.of("m", [*quick, 0.101], quick).passes
    for seconds, bare in [([], quick), (quick, [])]:
        with pytest.raises(ValueError, match="no answer"):
            Latency.of("m", seconds, bare)


def test_a_slow_machine_is_shown_and_excuses_nothing() -> None:
    latency = Latency.of("m", [0.2], [0.001, 0.3])
    assert (latency.bare_p99_s, latency.bare_worst_s) == (0.3, 0.3)
    assert not latency.passes


def test_who_asks_is_not_held_up_by_its_own_process() -> None:
    asked, states = Event(), []

    class Livez(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            states.append((self.path, gc.isenabled(), sys.getswitchinterval() < usual_s))
            asked.set()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    usual_s = sys.getswitchinterval()
    with ThreadingHTTPServer(("127.0.0.1", 0), Livez) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        watch = Watch(server.server_address[1])
        with watch.during():
            assert asked.wait(HANG_S)
        server.shutdown()
    assert set(states) == {("/livez", False, True)}
    assert watch.seconds
    assert gc.isenabled()
    assert sys.getswitchinterval() == pytest.approx(usual_s)
