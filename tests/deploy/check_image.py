"""Tries a built image as Kubernetes would run it; .ci/docker builds one and calls this file by name.

FERRY_IMAGE names the image, DOCKER the client (default `docker`).
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deploy.manifests import ROOT

DOCKER = os.environ.get("DOCKER", "docker")
IMAGE = os.environ.get("FERRY_IMAGE", "ferry")
HARDENED = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]  # noqa: S108
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
    """A running container of the image on a free port of the loopback."""

    def __init__(self, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        place = [
            "-e",
            "FERRY_HOST=127.0.0.1",
            "-e",
            f"FERRY_REST_PORT={self.port}",
            "-e",
            "FERRY_GRPC_PORT=0",
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

    def stop(self) -> float:
        """Seconds until it has ended."""
        started = time.monotonic()
        docker("stop", self.id)
        return time.monotonic() - started


@contextmanager
def running(*options: str) -> Iterator[Container]:
    container = Container(*options)
    try:
        yield container
    finally:
        print(docker("logs", container.id))  # noqa: T201 - pytest shows it when a test fails
        docker("rm", "-f", container.id)


def digit() -> dict[str, Any]:
    samples: list[dict[str, Any]] = json.loads((ROOT / "models" / "digits" / "samples.json").read_text())["samples"]
    return samples[0]


def test_serves_reports_its_health_and_stops_cleanly() -> None:
    with running("--health-interval", "1s") as container:
        eventually(container.is_ready, START_S)
        status, body = container.ask("POST", "/v1/models/digits:predict", {"instances": [digit()["image"]]})
        assert status == 200, body
        probabilities = json.loads(body)["predictions"][0]
        assert probabilities.index(max(probabilities)) == digit()["label"]
        assert container.ask("GET", "/livez")[0] == 200
        eventually(lambda: container.state("Health.Status") == "healthy", 30)
        assert container.stop() < STOP_S
        assert (container.state("ExitCode"), container.state("OOMKilled")) == ("0", "false")


def test_stop_while_tensorflow_is_imported_needs_no_kill() -> None:
    with running() as container:
        maps = Path("/proc") / container.state("Pid") / "maps"
        eventually(lambda: "libtensorflow" in maps.read_text(), START_S)
        assert not container.is_ready()
        assert container.stop() < STOP_S
        assert container.state("ExitCode") == "0"


def test_mounted_models_take_the_place_of_the_shipped_ones(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "models" / "digits" / "1", tmp_path / "mounted" / "3")
    tmp_path.chmod(0o755)
    with running("-v", f"{tmp_path}:/models:ro") as container:
        eventually(container.is_ready, START_S)
        assert container.ask("GET", "/v1/models/mounted/versions/3")[0] == 200
        assert container.ask("GET", "/v1/models/digits")[0] == 404


def test_wrong_setting_ends_the_start_with_one_line() -> None:
    run = subprocess.run(
        [DOCKER, "run", "--rm", "--network", "none", *HARDENED, "-e", "FERRY_MAX_BATCH_SIZE=none", IMAGE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode not in (0, 125)
    assert "max_batch_size" in run.stderr.lower()
    assert len(run.stderr.strip().splitlines()) == 1


def test_holds_no_compiler_and_runs_without_privileges() -> None:
    code = "import os, shutil; print(os.getuid(), shutil.which('cc'), shutil.which('gcc'))"
    options = ["--rm", "--network", "none", *HARDENED, "--entrypoint", "python"]
    assert docker("run", *options, IMAGE, "-c", code) == "10001 None None"


def test_reads_long_json_arrays_by_compiled_code() -> None:
    code = "from app.codecs.json.compiled_numbers import available; print(available())"
    options = ["--rm", "--network", "none", *HARDENED, "--entrypoint", "python"]
    assert docker("run", *options, IMAGE, "-c", code) == "True"


def test_carries_no_training_script_and_no_header() -> None:
    code = (
        "import pathlib, tensorflow; "
        "print(*pathlib.Path('/models').rglob('*.py'), *pathlib.Path(tensorflow.__path__[0]).glob('include'))"
    )
    options = ["--rm", "--network", "none", *HARDENED, "--entrypoint", "python", "-e", "TF_CPP_MIN_LOG_LEVEL=3"]
    assert docker("run", *options, IMAGE, "-c", code) == ""
