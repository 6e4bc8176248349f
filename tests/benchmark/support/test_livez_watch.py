from __future__ import annotations

import gc
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from bench.support.livez_watch import Watch
from tests.support.waiting import HANG_S


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
