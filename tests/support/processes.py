"""The real server in a process of its own, on a free loopback port."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
START_S = 90.0

#: What one server of this user's test runs measured, the next need not measure again.
VARIANTS = Path(tempfile.gettempdir()) / f"ferry-test-variants-{os.getuid()}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class ServerProcess:
    """A running server: `url`, its HTTP client, and what it wrote so far."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT
            )
        self.client = httpx.Client(base_url=self.url, timeout=60.0)

    def wait_for(self, path: str, status: int) -> None:
        """Asks until the path answers with the status; a process that ended meanwhile is an error."""
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up:
            if self.process.poll() is not None:
                raise AssertionError(f"The server ended with {self.process.returncode}:\n{self.log.read_text()}")
            try:
                if self.client.get(path).status_code == status:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"{path} never answered {status}:\n{self.log.read_text()}")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(60)

    def metrics(self) -> dict[str, float]:
        """Every sample of the metrics page by its name and labels, as written."""
        lines = self.client.get("/metrics").text.splitlines()
        return {
            name: float(value)
            for name, value in (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        }

    async def post_all_at_once(self, path: str, bodies: Sequence[bytes], rounds: int) -> list[list[tuple[int, bytes]]]:
        """In each round every body goes out on a connection of its own before any reply is read."""
        host, port = self.url.removeprefix("http://").split(":")
        streams = [await asyncio.open_connection(host, int(port)) for _ in bodies]
        replies = []
        for _ in range(rounds):
            for (_, writer), body in zip(streams, bodies, strict=True):
                head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
            replies.append([await _read_reply(reader) for reader, _ in streams])
        for _, writer in streams:
            writer.close()
        return replies


async def _read_reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = head.split("content-length: ")[1].split("\r\n")[0]
    return int(head.split()[1]), await reader.readexactly(int(length))


#: The number of frontends in each arrangement of processes.
ARRANGEMENTS = {"one process": 0, "frontends": 2}


@contextmanager
def serving(
    models: Path, log: Path, command: Sequence[str] = ("-m", "app", "serve"), ready: bool = True, **settings: object
) -> Iterator[ServerProcess]:
    """Serves the folder until the block ends. `settings` become FERRY_ variables.

    Models run as they are: answers are compared to the bit, and a frozen convolution's last bits depend
    on where its input lies in memory.
    """
    port = free_port()
    values = {
        "host": "127.0.0.1",
        "rest_port": port,
        "grpc_port": 0,
        "models": models,
        "execution_variant": "plain",
        "variant_cache": VARIANTS,
        **settings,
    }
    environment = {f"FERRY_{name.upper()}": str(value) for name, value in values.items()}
    arguments = [argument.format(port=port) for argument in command]
    server = ServerProcess([sys.executable, *arguments], environment, port, log)
    try:
        if ready:
            server.wait_for("/readyz", 200)
        yield server
    finally:
        server.client.close()
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(10)
