"""What keys, TLS, metrics and traces take of the requests a second of a tiny model.

    python -m bench.protection [--rounds 5] [--seconds 4] [--json FILE]

Five servers in turn, each with one core less than there are, and wrk on that one (with one core alone all share it):
nothing on; 32 keys with rates, one after the other; TLS; a page of metrics each 15 seconds and traces with a collector
that answers, by the default share; all of these. 64 kept connections, JSON, so handshakes do not count. Ratios are of
the same round. The goal is 0.9 for all together. Beside the rates stands the server's processor time for a request,
which other work on the machine changes less. What came stands in docs/access.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple
from urllib.request import Request, urlopen

import yaml

from bench.models import ensure_models, read_samples, saved_model
from bench.support import wrk
from bench.support.cores import for_server_and_load, on_cores
from bench.support.figures import save
from bench.support.forms import FORMS, Body
from bench.support.live_server import cpu_seconds, live_process
from bench.support.machine import machine_line, require
from tests.support.processes import free_port
from tests.transports.tls.certificates import Authority, Pair

_MODEL = "mlp"
_CONNECTIONS = 64
_KEYS = [f"ferry_key_{number:02}" for number in range(32)]

#: Seconds between two looks at the metrics.
_SCRAPED_S = 15.0

#: Which of keys, TLS, and metrics with traces each way has.
_WAYS: Mapping[str, frozenset[str]] = {
    "nothing": frozenset(),
    "keys": frozenset({"keys"}),
    "tls": frozenset({"tls"}),
    "watched": frozenset({"watched"}),
    "all": frozenset({"keys", "tls", "watched"}),
}


class Started(NamedTuple):
    """A server: its port, that of its operator, and its process."""

    port: int
    operator_port: int
    pid: int


class Run(NamedTuple):
    """Requests a second, and microseconds of the server's processor time for each."""

    rate: float
    cpu_us: float


class Collector(BaseHTTPRequestHandler):
    """Takes spans by OTLP over HTTP, and forgets them."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run")
    parser.add_argument("--json", type=Path, help="file for the ratios by round")
    options = parser.parse_args()
    require("wrk")
    ensure_models()
    print(machine_line())
    runs = measured(options.rounds, options.seconds)
    figures = {
        f"{way}_kept": [a.rate / b.rate for a, b in zip(runs[way], runs["nothing"], strict=True)] for way in _WAYS
    }
    del figures["nothing_kept"]
    cpu_us = {way: statistics.median(run.cpu_us for run in of_way) for way, of_way in runs.items()}
    for way in _WAYS:
        kept = figures.get(f"{way}_kept", [1.0])
        print(
            f"  {way:8} {statistics.median(run.rate for run in runs[way]):8,.0f} requests/s, of nothing on "
            f"{statistics.median(kept):.2f} ({min(kept):.2f}-{max(kept):.2f}); {cpu_us[way]:.1f} us of CPU a request"
        )
    save(options.json, figures)


def measured(rounds: int, seconds: float) -> dict[str, list[Run]]:
    """By way, the run of each round."""
    server_cores, load_cores = for_server_and_load()
    runs: dict[str, list[Run]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as name, ExitStack() as started:
        folder = Path(name)
        write_access_file(folder / "access.yaml")
        pair = Authority(folder).issue()
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = started.enter_context(collector())
        with on_cores(server_cores):
            servers = {way: started.enter_context(server(on, folder, pair)) for way, on in _WAYS.items()}
        started.enter_context(scraped([servers[way].operator_port for way, on in _WAYS.items() if "watched" in on]))
        with on_cores(load_cores):
            for number in range(rounds + 1):  # the first warms up
                for way, on in _WAYS.items():
                    run = asked(servers[way], on, seconds)
                    if number:
                        runs[way].append(run)
    return runs


def asked(server: Started, on: frozenset[str], seconds: float) -> Run:
    """Raises RuntimeError: a request failed."""
    url = f"{'https' if 'tls' in on else 'http'}://127.0.0.1:{server.port}/v1/models/{_MODEL}:predict"
    before_s = cpu_seconds(server.pid)
    run = wrk.closed_loop(url, bodies("keys" in on), _CONNECTIONS, seconds)
    if run.failed:
        raise RuntimeError(f"{run.failed} of {run.requests} requests to {url} failed")
    return Run(run.rate, (cpu_seconds(server.pid) - before_s) / run.requests * 1e6)


def bodies(with_keys: bool) -> Sequence[Body]:
    write = FORMS["v1-json"].write
    rows = [row for row, _ in read_samples(_MODEL)[: len(_KEYS)]]
    made = [write("x", rows[number % len(rows)]) for number in range(len(_KEYS))]
    if not with_keys:
        return made
    return [replace(body, headers={**body.headers, "x-api-key": key}) for body, key in zip(made, _KEYS, strict=True)]


@contextmanager
def server(on: frozenset[str], folder: Path, pair: Pair) -> Iterator[Started]:
    """One that has chosen its execution variants."""
    operator_port = free_port()
    settings: dict[str, object] = {"models": saved_model(_MODEL).parent.parent, "grpc_port": 0, "ready_when": "tuned"}
    settings |= {"operator_port": operator_port, "operator_port_tls": "off"}
    if "keys" in on:
        settings["access_file"] = folder / "access.yaml"
    if "tls" in on:
        settings |= {"tls_certificate": pair.certificate, "tls_key": pair.key}
    if "watched" in on:
        settings["traces"] = True
    with live_process(wait_until="/readyz", **settings) as (port, pid):
        yield Started(port, operator_port, pid)


@contextmanager
def scraped(ports: Sequence[int]) -> Iterator[None]:
    """Metrics are read at these ports as often as k8s/components/monitoring has it."""
    over = Event()

    def scrape() -> None:
        while not over.wait(_SCRAPED_S):
            for port in ports:
                page = Request(f"http://127.0.0.1:{port}/metrics", headers={"x-api-key": _KEYS[0]})
                urlopen(page, timeout=30).read()

    thread = Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def collector() -> Iterator[str]:
    """The endpoint of one that answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as listener:
        thread = Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_address[1]}"
        finally:
            listener.shutdown()
            thread.join()


def write_access_file(path: Path) -> None:
    """All keys, each with a rate that it does not reach."""
    allowed = {"models": ["*"], "permissions": ["infer", "metadata", "metrics"], "rate": 1_000_000}
    keys = [{"name": key, "sha256": hashlib.sha256(key.encode()).hexdigest(), **allowed} for key in _KEYS]
    path.write_text(yaml.safe_dump({"keys": keys}))


if __name__ == "__main__":
    main()
