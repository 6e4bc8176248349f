"""Floods of HTTP/2 at a real server: how soon is each ended, and what do honest calls of gRPC notice?

    python -m bench.http2_floods [--rounds 3] [--floods "rapid reset,pings"] [--tls] [--json FILE]

Each flood (tests/transports/grpc/http2_floods.py) comes from a process of its own, while an honest client makes calls
one after another. Prints, for each, the milliseconds until its connection is ended, and the slowest honest call
meanwhile, beside the slowest of as long a time before. Server, attacker and client share the machine's cores. With
`--tls` all of it is over TLS, the handshakes before are not counted. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Thread
from typing import Any

import grpc

from bench.models import ensure_models, saved_model
from bench.support.goals import all_met, goals_table, of_script
from bench.support.live_server import live_process
from tests.support.processes import free_port
from tests.transports.grpc.http2_floods import FLOODS, PATH, pieces
from tests.transports.grpc.http2_frames import GOAWAY, Http2Client
from tests.transports.tls.certificates import Authority

#: A flood that is not ended by then is given up.
_MOST_S = 5.0

#: Requests of a flood: more than any server should answer.
_REQUESTS = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Milliseconds: until the connection was ended, and of the slowest honest call before and meanwhile."""

    ended_ms: float
    before_ms: float
    meanwhile_ms: float


def attack(flood: str, port: int, authority: Path | None, told: Any) -> None:
    """Sends the flood until its connection ends, and tells after how many seconds that was.

    Args:
        authority: file of the server's authority, where it has TLS.
    """
    parts = list(pieces(flood, 2000))
    client = Http2Client(port, None if authority is None else _client_context(authority))
    client.read()  # so all that TLS itself sends has come: a thread reads while this one writes
    told.put("ready")
    began_s, ended_s = time.perf_counter(), inf

    def read() -> None:
        nonlocal ended_s
        with suppress(OSError):
            while (got := client.read()) is not None and got.kind != GOAWAY:
                pass
        ended_s = time.perf_counter() - began_s

    reading = Thread(target=read, daemon=True)
    reading.start()
    with suppress(OSError):
        for _ in range(_REQUESTS // 2000):
            for each in parts:
                client.send(each)
                if ended_s < inf or time.perf_counter() - began_s > _MOST_S:
                    break
    reading.join(max(0.0, _MOST_S - (time.perf_counter() - began_s)))
    told.put(ended_s)


def _client_context(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    context.set_alpn_protocols(["h2"])
    return context


def _channel(port: int, authority: Path | None) -> grpc.aio.Channel:
    if authority is None:
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(authority.read_bytes()))


async def slowest_ms(call: Any, over: asyncio.Event) -> float:
    slowest_s = 0.0
    while not over.is_set():
        began_s = time.perf_counter()
        await call(b"")
        slowest_s = max(slowest_s, time.perf_counter() - began_s)
    return 1e3 * slowest_s


async def attacked(flood: str, port: int, authority: Path | None) -> Outcome:
    spawn = multiprocessing.get_context("spawn")
    told: Any = spawn.Queue()
    process = spawn.Process(target=attack, args=(flood, port, authority, told))
    async with _channel(port, authority) as channel:
        call = channel.unary_unary(PATH)
        await call(b"", wait_for_ready=True)
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.5, over.set)
        before_ms = await slowest_ms(call, over)
        process.start()
        await asyncio.to_thread(told.get)
        over.clear()
        calling = asyncio.create_task(slowest_ms(call, over))
        ended_s = await asyncio.to_thread(told.get)
        over.set()
        meanwhile_ms = await calling
    process.join()
    return Outcome(1e3 * ended_s, before_ms, meanwhile_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--floods", default="", help=f"of {', '.join(FLOODS)}; all")
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--json", type=Path, help="file for the figures by round")
    options = parser.parse_args()
    wanted = [each for each in FLOODS if each in options.floods.split(",") or not options.floods]
    if not wanted:
        parser.error(f"--floods knows {', '.join(FLOODS)}")
    figures = run(wanted, options.rounds, tls=options.tls)
    print("\n".join(["", *goals_table(of_script("http2_floods", figures), measured_only=True)]))
    if options.json:
        options.json.write_text(json.dumps(figures))
    sys.exit(not all_met(of_script("http2_floods", figures)))


def run(floods: Sequence[str], rounds: int, *, tls: bool) -> dict[str, list[float]]:
    """The slowest of all floods, by round."""
    if not tls:
        return _run(floods, rounds, {})
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        certificate, key = authority.issue()
        settings: dict[str, object] = {"tls_certificate": certificate, "tls_key": key}
        settings |= {"operator_port": free_port(), "operator_port_tls": "off"}
        return _run(floods, rounds, settings, authority.certificate)


def _run(
    floods: Sequence[str], rounds: int, settings: Mapping[str, object], authority: Path | None = None
) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {"ended_ms": [], "meanwhile_ms": []}
    ensure_models()
    grpc_port = free_port()
    with live_process(models=saved_model("mlp").parent.parent, grpc_port=grpc_port, **settings):
        print("| flood | ended after ms | slowest honest call, ms | before |\n|---|---|---|---|")
        for number in range(rounds):
            outcomes = {}
            for flood in floods:
                outcomes[flood] = each = asyncio.run(attacked(flood, grpc_port, authority))
                print(f"| {flood} | {each.ended_ms:.0f} | {each.meanwhile_ms:.0f} | {each.before_ms:.0f} |", flush=True)
            figures["ended_ms"].append(max(each.ended_ms for each in outcomes.values()))
            figures["meanwhile_ms"].append(max(each.meanwhile_ms for each in outcomes.values()))
            print(f"round {number + 1} of {rounds}", flush=True)
    return figures


if __name__ == "__main__":
    main()
