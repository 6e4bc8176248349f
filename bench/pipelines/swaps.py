"""Requests over HTTP while versions of models and pipelines are swapped, and at SIGTERM: none may fail.

A server in a process of its own; clients with a connection each send trees and a cascade in turn and compare every
answer. A swap puts a new version of a model or a pipeline, waits until it is served, and removes the old one. At the
end clients send nothing new, and SIGTERM comes while their last requests are under way. Predicted: 0 failed.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bench.pipelines.figures import Figures
from bench.pipelines.options import Options
from bench.pipelines.served import apart, put_pipeline, save
from bench.pipelines.treelstm import Tree, by_numpy, save_models, trees
from bench.support.live_server import is_ready, started_process

_CLIENTS = 8

#: Seconds until what is waited for is there, such as a new version.
_MOST_S = 120.0

#: Requests that were sent this long before SIGTERM have arrived.
_ON_THE_WAY_S = 0.01

#: The big one has its answer for who is not sure.
_GATED = """
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}, when: small.score < 0.5}
outputs: {y: [big.y, small.y]}
"""


class Request(NamedTuple):
    """`expected` has the shape [rows, ...]."""

    path: str
    body: bytes
    expected: Any


async def measure(folder: Path, options: Options) -> Figures:
    return await asyncio.to_thread(_measure, folder, options.swaps)


def _measure(folder: Path, swaps: int) -> Figures:
    models = folder / "models"
    _save_models(models)
    settings = {"models": models, "variant_cache": folder / "variants", "poll_interval_s": 0.1, "settle_s": 0}
    with started_process(**settings, wait_for_models=True, grpc_port=0) as (port, process):
        _wait_until(lambda: is_ready(port), "the server is ready")
        load = _Load(port)
        done = _swap(port, models, swaps, load)
        load.begin_no_more()
        time.sleep(_ON_THE_WAY_S)
        under_way = load.under_way
        process.terminate()
        load.join()
        exit_code = process.wait(_MOST_S)
    print(f"  {done} swaps, {len(load.seconds)} requests, {under_way} under way at SIGTERM, exit code {exit_code}")
    p50, p99 = 1000 * np.quantile(load.seconds, [0.5, 0.99])
    print(f"  p50 and p99 of requests: {p50:.0f} and {p99:.0f} ms")
    for failure in load.failures[:5]:
        print(f"  {failure}")
    return {"swaps_failed": [float(len(load.failures))], "swaps_not_done": [float(swaps - done + (exit_code != 0))]}


# --- requests ---


class _Load:
    """Clients with a connection each, which send one request after the other until they are told to end."""

    def __init__(self, port: int) -> None:
        self.under_way = 0
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._port = port
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._client, args=(number,)) for number in range(_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def begin_no_more(self) -> None:
        self._ended.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(_MOST_S)
            if thread.is_alive():
                self.failures.append("a request is not answered")

    def _client(self, number: int) -> None:
        requests = cycle(_requests(number))
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=_MOST_S)) as connection:
            while not self._ended.is_set():
                begin_s = time.monotonic()
                with self._lock:
                    self.under_way += 1
                failure = _ask(connection, next(requests))
                with self._lock:
                    self.under_way -= 1
                    self.seconds.append(time.monotonic() - begin_s)
                    self.failures += [f"{time.strftime('%H:%M:%S')} {failure}"] if failure else []


def _ask(connection: http.client.HTTPConnection, request: Request) -> str:
    """Returns what is wrong with the answer, if anything is."""
    try:
        connection.request("POST", request.path, request.body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            return f"{request.path}: {reply.status} {content[:300]!r}"
        found = np.array(json.loads(content)["outputs"])
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        connection.close()
        return f"{request.path}: {error!r}"
    differs = apart(found, request.expected)
    return f"{request.path}: {differs:.1e} from what is expected" if differs > 1e-5 else ""


def _requests(seed: int) -> list[Request]:
    """A forest of some trees, and 64 rows of which half go to the big model."""
    return [_forest(trees(32, "small")[4 * seed % 32 :][:4]), _gated(np.random.default_rng(seed).random((64, 16)))]


def _forest(own: list[Tree]) -> Request:
    words, children, before = list[int](), list[list[int]](), 0
    for tree in own:
        inputs = tree.as_tree
        words += inputs["words"].tolist()
        children += np.where(inputs["children"] < 0, -1, inputs["children"] + before).tolist()
        before = len(words)
    return _request("tree", {"words": words, "children": children}, np.concatenate([by_numpy(tree) for tree in own]))


def _gated(x: Any) -> Request:
    x = x.astype(np.float32)
    return _request("gated", {"x": x.tolist()}, np.where(x[:, :1] < 0.5, x * 10, x + 1))


def _request(model: str, inputs: dict[str, Any], expected: Any) -> Request:
    return Request(f"/v1/models/{model}:predict", json.dumps({"inputs": inputs}).encode(), expected)


# --- versions ---


def _save_models(folder: Path) -> None:
    save_models(folder)
    x = tf.TensorSpec([None, 16], tf.float32)
    save(folder, "small", lambda x: {"score": x[:, 0], "y": x + 1}, x=x)
    save(folder, "big", lambda x: {"y": x * 10}, x=x)
    put_pipeline(folder, "gated", _GATED)
    for name in ("sentence", "inner", "leaf", "head"):
        shutil.rmtree(folder / name)


def _swap(port: int, models: Path, swaps: int, load: _Load) -> int:
    """Each model and pipeline in turn, until a request fails. Returns how many were swapped."""
    newest = dict.fromkeys(sorted(folder.name for folder in models.iterdir()), 1)
    for done, name in enumerate(islice(cycle(newest), swaps)):
        if load.failures:
            return done
        old, newest[name] = models / name / str(newest[name]), newest[name] + 1
        made = Path(shutil.copytree(old, models.parent / "made"))
        made.rename(models / name / str(newest[name]))
        _wait_until(lambda name=name: _is_served(port, name, newest[name]), f"{name}/{newest[name]} is served")
        shutil.rmtree(old.rename(models.parent / "removed"))
    return swaps


def _is_served(port: int, name: str, version: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_MOST_S)) as connection:
        connection.request("GET", f"/v1/models/{name}/versions/{version}")
        reply = connection.getresponse()
        content = json.loads(reply.read())
    return reply.status == 200 and content["model_version_status"][0]["state"] == "AVAILABLE"


def _wait_until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + _MOST_S
    while not holds():
        if time.monotonic() > end_s:
            raise RuntimeError(f"not within {_MOST_S:g} s: {what}")
        time.sleep(0.05)
