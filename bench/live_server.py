"""A Ferry server in a process of its own for a benchmark, on a free loopback port; it ends with the block."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent


@contextmanager
def live_server(wait_until: str = "/readyz", **settings: object) -> Iterator[int]:
    """Yields the port of a ready server; `settings` become FERRY_ variables."""
    with live_process(wait_until=wait_until, **settings) as (port, _):
        yield port


@contextmanager
def live_process(root: Path = ROOT, wait_until: str = "/readyz", **settings: object) -> Iterator[tuple[int, int]]:
    """The same, of the tree at `root`; yields its process number, too."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    values = {"host": "127.0.0.1", "rest_port": port, "log_level": "warning", **settings}
    environment = {**os.environ, **{f"FERRY_{name.upper()}": str(value) for name, value in values.items()}}
    process = subprocess.Popen([sys.executable, "-m", "app", "serve"], cwd=root, env=environment)
    try:
        _wait_until_ready(process, port, wait_until)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(60)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, page: str) -> None:
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", page)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError("The server did not become ready")
