"""A container of the built image, run as Kubernetes would run it.

FERRY_IMAGE names the image, DOCKER the client (default `docker`).
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deploy.manifests import ROOT
from tests.support.processes import free_port

DOCKER = os.environ.get("DOCKER", "docker")
IMAGE = os.environ.get("FERRY_IMAGE", "ferry")
HARDENED = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]  # noqa: S108 - in the container
#: The memory limit of k8s/base.
LIMITS = ["--memory", "2g", "--cpus", "2"]
START_S = 120.0
#: Docker kills after ten seconds; a stop that needs the kill has failed.
STOP_S = 8.0


def docker(*arguments: str) -> str:
    run = subprocess.run([DOCKER, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def eventually(holds: Callable[[], Any], within_s: float) -> Any:
    """The first true value of `holds`; a real process answers to no fake clock."""
    deadline = time.monotonic() + within_s
    while not (value := holds()):
        assert time.monotonic() < deadline, f"not within {within_s} s"
        threading.Event().wait(0.05)
    return value


class Container:
    """A running container of the image on free ports of the loopback."""

    def __init__(self, *options: str) -> None:
        self.port, self.grpc_port = free_port(), free_port()
        place = [
            "-e",
            "FERRY_HOST=127.0.0.1",
            "-e",
            f"FERRY_REST_PORT={self.port}",
            "-e",
            f"FERRY_GRPC_PORT={self.grpc_port}",
            "--network",
            "host",
        ]
        self.id = docker("run", "-d", *HARDENED, *LIMITS, *place, *options, IMAGE)

    def state(self, field: str) -> str:
        return docker("inspect", "-f", "{{.State." + field + "}}", self.id)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def is_ready(self) -> bool:
        assert self.state("Running") == "true", docker("logs", self.id)
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def cpu_s(self) -> float:
        """Seconds of CPU that its first process has used."""
        after_name = Path(f"/proc/{self.state('Pid')}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, time_s: int = 10) -> float:
        """Seconds until it has ended; Docker kills after `time_s`."""
        started = time.monotonic()
        docker("stop", "--time", str(time_s), self.id)
        return time.monotonic() - started


@contextmanager
def running(*options: str) -> Iterator[Container]:
    container = Container(*options)
    try:
        yield container
    finally:
        print(docker("logs", container.id))  # noqa: T201 - pytest shows it when a test fails
        docker("rm", "-f", container.id)


def inside(code: str) -> str:
    """What Python prints in a container without network."""
    options = ["--rm", "--network", "none", *HARDENED, "--entrypoint", "python", "-e", "TF_CPP_MIN_LOG_LEVEL=3"]
    return docker("run", *options, IMAGE, "-c", code)


def digit() -> dict[str, Any]:
    samples: list[dict[str, Any]] = json.loads((ROOT / "models" / "digits" / "samples.json").read_text())["samples"]
    return samples[0]
