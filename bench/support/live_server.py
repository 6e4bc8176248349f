"""A Ferry server in a process of its own for a benchmark, on a free loopback port; it ends with the block."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.support.cache import ROOT


@contextmanager
def live_server(wait_until: str = "", **settings: object) -> Iterator[int]:
    """Yields the port of a server whose models are tuned, or that answers the page `wait_until`.

    `settings` become FERRY_ variables.
    """
    with live_process(wait_until=wait_until, **settings) as (port, _):
        yield port


@contextmanager
def live_process(root: Path = ROOT, wait_until: str = "", **settings: object) -> Iterator[tuple[int, int]]:
    """The same, of the tree at `root`; yields its process number, too.

    Pages are asked of `operator_port` if that is among the settings: it speaks no TLS then (`operator_port_tls`).
    """
    with started_process(root, **settings) as (port, process):
        _wait_until_ready(process, int(str(settings.get("operator_port", port))), wait_until)
        yield port, process.pid


@contextmanager
def started_process(root: Path = ROOT, **settings: object) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The same, without waiting for it; yields the process."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    values = {"host": "127.0.0.1", "rest_port": port, "log_level": "warning", **settings}
    environment = {**os.environ, **{f"FERRY_{name.upper()}": str(value) for name, value in values.items()}}
    process = subprocess.Popen([sys.executable, "-m", "app", "serve"], cwd=root, env=environment)
    try:
        yield port, process
    finally:
        process.send_signal(signal.SIGINT)  # without the grace
        process.wait(60)


def is_ready(port: int, page: str = "/readyz") -> bool:
    """Whether all models are loaded, or failed to load; of another page, whether it answers 200."""
    try:
        return _get(port, page)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def is_tuned(port: int) -> bool:
    """Whether nothing in the background makes models faster any more; True for a server that does no such work."""
    try:
        return is_ready(port) and not json.loads(_get(port, "/health")[1]).get("improving")
    except (OSError, http.client.HTTPException):
        return False


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, page: str) -> None:
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up and process.poll() is None:
        if is_ready(port, page) if page else is_tuned(port):
            return
        time.sleep(0.05)
    raise RuntimeError("The server did not become ready")


def cpu_seconds(pid: int) -> float:
    """Of a process, in the kernel too, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with closing(connection):
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()
