"""What Docker runs in a container, as a process. tests/live/test_tls.py has it with TLS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest


class _Readiness(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Readiness) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1)])
def test_a_container_is_healthy_while_its_server_is_ready(
    port: int, status: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Readiness, "status", status)
    monkeypatch.setenv("FERRY_REST_PORT", str(port))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    run = subprocess.run([sys.executable, "-m", "app.server.health_check"], check=False)
    assert run.returncode == expected
