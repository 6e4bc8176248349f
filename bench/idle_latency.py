"""The latency that Ferry adds to one request on an idle server.

Compares, in turn: one client on one connection against a live server; the same JSON parsed,
run through the SavedModel's signature and printed, in process. Prints medians and their
difference. Usage: python -m bench.idle_latency [--rounds 20] [--calls 100] [--json FILE]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bench.support.cache import ROOT
from bench.support.live_server import live_server


def direct_call(body: bytes) -> Callable[[], object]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # noqa: PLC0415 - after the setting above

    loaded = tf.saved_model.load(str(ROOT / "models/digits/1"))
    signature = loaded.signatures["serving_default"]

    def call() -> object:
        image = tf.constant(json.loads(body)["instances"], tf.float32)
        return json.dumps({"predictions": signature(image=image)["probabilities"].numpy().tolist()}), loaded

    return call


def http_call(port: int, body: bytes) -> Callable[[], object]:
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def call() -> object:
        connection.request("POST", "/v1/models/digits:predict", body)
        reply = connection.getresponse()
        answer = reply.read()
        assert reply.status == 200, answer
        return answer

    return call


def median_ms(call: Callable[[], object], calls: int) -> float:
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--json", type=Path, help="file for the figures: milliseconds by round")
    arguments = parser.parse_args()
    sample = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"][0]
    body = json.dumps({"instances": [sample["image"]]}).encode()
    with live_server() as port:
        calls = {"ferry": http_call(port, body), "direct": direct_call(body)}
        medians: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(arguments.rounds):
            for name, call in calls.items():
                medians[name].append(median_ms(call, arguments.calls))
    ferry, direct = medians["ferry"][1:], medians["direct"][1:]
    added = [a - b for a, b in zip(ferry, direct, strict=True)]
    print(f"p50, one client, idle server, {len(ferry)} rounds in turn of {arguments.calls} calls each")
    for name, figures in {"ferry (HTTP, JSON)": ferry, "direct call + JSON": direct, "added": added}.items():
        print(f"  {name:20} median {statistics.median(figures):.3f} ms  ({min(figures):.3f} .. {max(figures):.3f})")
    if arguments.json:
        arguments.json.write_text(json.dumps({"added_ms": added, "ferry_ms": ferry, "direct_ms": direct}))


if __name__ == "__main__":
    main()
