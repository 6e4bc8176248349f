"""The ways in which the corpus is served: plain, behind frontends, through pipelines, by the drop-in, by replicas."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.support.cache import ROOT
from tests.row_corpus.asked import Asked
from tests.support.processes import free_port

#: Seconds until all models are there.
_START_S = 600.0

#: The name of the pipeline of a model.
PIPED = "piped_"


@dataclass(frozen=True, slots=True)
class Way:
    """One way.

    command: behind the interpreter, for a port, a folder of models and their names. settings: become FERRY_ variables.
    servers: how many serve the same models, and keep what they find in the same folder.
    """

    name: str
    command: Callable[[int, Path, Sequence[str]], Sequence[str]]
    settings: Mapping[str, object]
    piped: bool = False
    servers: int = 1


def _serve(_: int, __: Path, ___: Sequence[str]) -> Sequence[str]:
    return ("-m", "app", "serve")


def _drop_in(port: int, models: Path, names: Sequence[str]) -> Sequence[str]:
    config = models.parent / "models.config"
    entries = [
        f'config {{ name: "{name}" base_path: "{models / name}" model_platform: "tensorflow" }}' for name in names
    ]
    config.write_text("model_config_list {\n" + "\n".join(entries) + "\n}\n")
    flags = {"rest_api_port": port, "port": 0, "model_config_file": config, "enable_batching": "true"}
    return ("-m", "app.model_server", *[f"--{name}={value}" for name, value in flags.items()])


WAYS = {
    each.name: each
    for each in (
        Way("plain", _serve, {}),
        Way("frontends", _serve, {"frontends": 2}),
        Way("pipeline", _serve, {}, piped=True),
        Way("drop-in", _drop_in, {}),
        Way("replicas", _serve, {}, servers=2),
    )
}


@contextmanager
def served(way: Way, models: Path, names: Sequence[str], log: Path) -> Iterator[list[int]]:
    """Yields the servers' ports, once all models answer."""
    with ExitStack() as stack:
        yield [stack.enter_context(_served(way, models, names, log)) for _ in range(way.servers)]


@contextmanager
def _served(way: Way, models: Path, names: Sequence[str], log: Path) -> Iterator[int]:
    port = free_port()
    values: dict[str, object] = {"log_level": "warning", "drain_grace_s": 0, "variant_cache": models.parent / "cache"}
    if way.command is _serve:
        values |= {
            "host": "127.0.0.1",
            "rest_port": port,
            "models": models,
            "settle_s": 0,
            "poll_interval_s": 0.5,
            "grpc_port": 0,
            **way.settings,
        }
    environment = {**os.environ, **{f"FERRY_{name.upper()}": str(value) for name, value in values.items()}}
    command = [sys.executable, *way.command(port, models, names)]
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(lambda: process.poll() is None, lambda: get(port, "/readyz")[0] == 200, log)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def _wait(lives: Callable[[], bool], ready: Callable[[], bool], log: Path) -> None:
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s and lives():
        try:
            if ready():
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.05)
    raise RuntimeError(f"The server did not become ready; {log} has its log")


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def batched(ports: Sequence[int], model: str) -> bool:
    """Whether requests to the newest version share calls by the batching page of each server."""
    return all(_batched(port, model) for port in ports)


def _batched(port: int, model: str) -> bool:
    status, content = get(port, f"/v1/models/{model}/batching")
    if status != 200:
        return False
    versions = json.loads(content)["versions"]  # the newest one first
    signatures = versions[0]["signatures"] if versions else []
    return bool(signatures) and all(each["batched"] and not each.get("alone") for each in signatures)


def put_pipelines(models: Path, requests: Mapping[str, Sequence[Asked]]) -> list[str]:
    """A pipeline of one step for each model; returns the names of the models."""
    for name, own in requests.items():
        folder = models / f"{PIPED}{name}" / "1"
        folder.mkdir(parents=True, exist_ok=True)
        inputs = {each: each for each in own[0].inputs}
        outputs = {each: f"own.{each}" for each in own[0].expected}
        plan = {"steps": {"own": {"model": name, "inputs": inputs}}, "outputs": outputs}
        (folder / "pipeline.yaml").write_text(json.dumps(plan))
    return [f"{PIPED}{name}" for name in requests]


def put_version(models: Path, names: Sequence[str], version: int) -> None:
    """The first version again, as another one."""
    for name in names:
        hidden = models / name / f".{version}"
        _linked(models / name / "1", hidden)
        hidden.rename(models / name / str(version))


def _linked(source: Path, target: Path) -> None:
    for each in source.rglob("*"):
        if each.is_file():
            place = target / each.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(each, place)
