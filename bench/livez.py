"""How long `/livez` takes while awkward models are loaded, probed and called at their worst shapes.

One server with an empty models folder gets the models of tests/awkward one after the other. From the moment that a
model appears until it is gone again, a thread asks `/livez` every 5 ms. As soon as it is served, eight clients ask it
for everything that the tests ask, and for full batches of that. Prints for each model p99 and the worst answer, in
milliseconds and as a share of the goals, and in the last columns those of a bare server that was asked at the same
time: what it is late, the machine is, not Ferry. The exit status is 1 if a model fails.
Usage: python -m bench.livez [--seconds 2] [--models NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from bench.support.bare_server import bare_server
from bench.support.live_server import live_server
from bench.support.livez_watch import P99_GOAL_S, WORST_GOAL_S, Latency, Ports, Watch, wait_for
from tests.support.bodies import PROTOBUF, as_protobuf

if TYPE_CHECKING:
    from tests.awkward.awkward_model import Asked, AwkwardModel

#: Path and body.
Post = tuple[str, bytes]

_CLIENTS = 8
_MOST_ROWS = 64


def table(latencies: Sequence[Latency]) -> str:
    """One line a model, the worst first, then how many pass."""
    head = f"{'model':28} {'answers':>7} {'p99, ms':>8} {'of goal':>7} {'worst, ms':>9} {'of goal':>7}"
    head += f"  {'':4} {'bare p99':>8} {'worst':>6}"
    passed = sum(each.passes for each in latencies)
    goals = f"p99 <= {1e3 * P99_GOAL_S:g} ms, worst <= {1e3 * WORST_GOAL_S:g} ms"
    lines = map(line, sorted(latencies, key=lambda latency: -latency.worst_s))
    return "\n".join([head, *lines, f"{passed} of {len(latencies)} pass: {goals}"])


def line(latency: Latency) -> str:
    p99_s, worst_s = latency.p99_s, latency.worst_s
    return (
        f"{latency.model:28} {latency.answers:7} {1e3 * p99_s:8.1f} {p99_s / P99_GOAL_S:7.2f}"
        f" {1e3 * worst_s:9.1f} {worst_s / WORST_GOAL_S:7.2f}  {'pass' if latency.passes else 'FAIL'}"
        f" {1e3 * latency.bare_p99_s:8.1f} {1e3 * latency.bare_worst_s:6.1f}"
    )


# --- requests ---


def requests_for(model: AwkwardModel) -> list[Post]:
    """Each that the tests ask, and each repeated until it fills the largest batch."""
    asked = [*model.asked, *model.rejects]
    return [_post(model.name, each) for each in [*asked, *filter(None, map(_full, asked))]]


def _full(asked: Asked) -> Asked | None:
    rows = {array.shape[:1] for array in asked.inputs.values()}
    if len(rows) != 1 or rows & {(), (0,)} or any(name.endswith("_1") for name in asked.inputs):
        return None  # no rows, none to repeat, or ragged
    inputs = {name: np.resize(array, (_MOST_ROWS, *array.shape[1:])) for name, array in asked.inputs.items()}
    return replace(asked, inputs=inputs)


def _post(model: str, asked: Asked) -> Post:
    path = f"/v1/models/{quote(model)}:predict?signature_name={asked.signature}"
    return path, as_protobuf(asked.inputs)


def send_all(port: int, posts: Sequence[Post], seconds: float) -> None:
    """Sends them in turn from eight threads, for this long. Raises RuntimeError where the server fails."""
    ends_s = time.monotonic() + seconds
    failures: list[str] = []

    def send(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        number = first
        while time.monotonic() < ends_s:
            path, body = posts[number % len(posts)]
            connection.request("POST", path, body, {"Content-Type": PROTOBUF})
            reply = connection.getresponse()
            text = reply.read()
            if reply.status not in (200, 400):
                failures.append(f"{path}: {reply.status} {text[:300]!r}")
            number += 1

    threads = [threading.Thread(target=send, args=(first,)) for first in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"{len(failures)} failures; the first: {failures[0]}")


# --- the measurement ---


def watched(ports: Ports, models: Path, made: Path, posts: Sequence[Post], seconds: float) -> Latency:
    """Moves the model in folder `made` into the server's folder, calls it for this many seconds, and takes it away."""
    watch, bare = map(Watch, ports)
    with watch.during(), bare.during():
        made.rename(models / made.name)
        wait_for(ports.server, made.name, "AVAILABLE")
        load = get_context("spawn").Process(target=send_all, args=(ports.server, posts, seconds))
        load.start()
        load.join()
        (models / made.name).rename(made)
        wait_for(ports.server, made.name, "END")
    if load.exitcode:
        raise RuntimeError(f"{made.name}: the load failed")
    return Latency.of(made.name, watch.seconds, bare.seconds)


def idle(ports: Ports, seconds: float) -> Latency:
    watch, bare = map(Watch, ports)
    with watch.during(), bare.during():
        time.sleep(seconds)
    return Latency.of("(idle)", watch.seconds, bare.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of calls, for each model")
    parser.add_argument("--models", nargs="+", help="some of them, by name; all without it")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    from tests.awkward.catalog import MODELS  # noqa: PLC0415 - it imports TensorFlow

    chosen = [each for each in MODELS if not arguments.models or each.name in arguments.models]
    with tempfile.TemporaryDirectory() as folder:
        made, models = Path(folder) / "made", Path(folder) / "models"
        models.mkdir()
        for model in chosen:
            model.make(made / model.name / "1")
        settings = {
            "models": models,
            "poll_interval_s": 0.2,
            "empty_grace_s": 0,  # a model that is taken away leaves an empty folder
            "grpc_port": 0,
            "variant_cache": Path(folder) / "cache",
        }
        with live_server(wait_until="/livez", **settings) as port, bare_server() as bare_port:
            ports, latencies = Ports(port, bare_port), []
            for model in chosen:
                posts = requests_for(model)
                latencies.append(watched(ports, models, made / model.name, posts, arguments.seconds))
                print(line(latencies[-1]), flush=True)
            latencies.append(idle(ports, arguments.seconds))  # at first the server imports TensorFlow
    print(table(latencies))
    if arguments.json:
        arguments.json.write_text(json.dumps([each._asdict() for each in latencies]))
    sys.exit(not all(each.passes for each in latencies))


if __name__ == "__main__":
    main()
