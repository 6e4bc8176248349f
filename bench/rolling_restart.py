"""Servers are restarted one by one behind HAProxy, which tries nothing twice, under load: no request may fail.

    python -m bench.rolling_restart [--requests 100000] [--ways kept each grpc] [--balancer http|tcp] [--servers 3]
                                    [--clients 8] [--frontends 0] [--grace 3] [--swap] [--check 1] [--light]

HAProxy asks `/readyz` every second (`--check`) and leaves a server out after two bad answers, so it goes on sending for
a while after SIGTERM, as Kubernetes does. With `http` it balances requests, over connections that it keeps; with `tcp`
connections, as Services of Kubernetes do: then the clients see how connections end. Clients send as fast as they are
answered, a quarter of them with pauses of up to 5 s, and compare every answer. `kept`: HTTP over kept connections;
`each`: a connection for each request; `grpc`. `--swap` also replaces the model's version all the time. Restarts go on
until every way has had its requests, and each server was restarted once. `--light` serves a model in numpy, which
starts quickly. Needs HAProxy (Debian: haproxy). The exit status is 1 if a request failed, or a server did not end with
0. Predicted: 0 failed; with `--grace 0` some.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from bench.support.cache import ROOT
from tests.support.grpc_live import predict_request, spec
from tests.support.processes import free_port
from tests.support.waiting import HANG_S

WAYS = ("kept", "each", "grpc")
BALANCERS = ("http", "tcp")

_PREDICT = "/tensorflow.serving.PredictionService/Predict"

#: This part of the clients pauses for up to so many seconds between requests: longer than the grace. Chosen.
_PAUSING, _MOST_PAUSE_S = 4, 5.0

#: Chosen: so many failures of a way are printed.
_SHOWN = 10

#: Chosen: a client that failed waits so long before it goes on.
_AFTER_FAILURE_S = 0.2

#: HAProxy takes a server in after two good answers; so many checks take that long for certain.
_CHECKS = 2.5

#: Chosen: how often versions are swapped.
_SWAP_EVERY_S = 1.0

_PROXY = """
global
    maxconn 2000
    nbthread 1
defaults
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout check 1s
    retries 0
    default-server inter {check_ms} fall 2 rise 2
"""

_LISTEN = """
listen {way}
    mode {mode}
    bind 127.0.0.1:{port} {bind}
    option httpchk GET /readyz
    {more}
"""


@dataclass(frozen=True, slots=True)
class Target:
    """What is served, and asked. `command` starts it; `make` writes a version into a folder."""

    command: Sequence[str]
    make: Callable[[Path], None]
    model: str
    input: str
    value: Any

    @property
    def path(self) -> str:
        return f"/v1/models/{self.model}:predict"

    @property
    def answer(self) -> Any:
        """As arrays, [1, ...]."""
        return self.value * 2 if self.model == "m" else self.value / 2 + 2

    @property
    def body(self) -> bytes:
        return json.dumps({"instances": self.value.tolist()}).encode()

    @property
    def grpc_request(self) -> bytes:
        content: bytes = predict_request({self.input: self.value}, spec(self.model)).SerializeToString()
        return content


def real_target() -> Target:
    from tests.support.savedmodels import make_half_plus_two  # noqa: PLC0415 - imports TensorFlow

    return Target(("-m", "app", "serve"), make_half_plus_two, "half_plus_two", "x", np.array([3.0], np.float32))


def light_target(frontends: int) -> Target:
    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").touch()

    module = "tests.frontends.numpy_server" if frontends else "tests.server.numpy_process"
    return Target(("-m", module), make, "m", "features", np.array([[3.0, 4.0]], np.float32))


@dataclass
class Load:
    """The requests of one way.

    Attributes:
        failures: what was seen instead of the right answer.
        seconds: of every request that was answered.
    """

    way: str
    wanted: int
    sent: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def complete(self) -> bool:
        return self.sent >= self.wanted

    def line(self) -> str:
        p50, p99, worst = 1e3 * np.quantile(self.seconds, [0.5, 0.99, 1.0]) if self.seconds else (0.0, 0.0, 0.0)
        times = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, worst {worst:.0f} ms"
        return f"{self.way:5} {self.sent:7} requests, {len(self.failures)} failed; {times}"


class Slot:
    """One server after the other, always on the same ports."""

    def __init__(self, target: Target, folder: Path, number: int, settings: dict[str, object]) -> None:
        self.rest, self.grpc = free_port(), free_port()
        self.log = folder / f"server-{number}"
        self.codes: list[int] = []
        self._target = target
        values = {
            **settings,
            "host": "127.0.0.1",
            "rest_port": self.rest,
            "grpc_port": self.grpc,
            "models": folder / "models",
            "variant_cache": folder / "variants",
            "poll_interval_s": 0.2,
            "settle_s": 0,
        }
        self._environment = {f"FERRY_{name.upper()}": str(value) for name, value in values.items()}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, *self._target.command),
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(HANG_S):
            while await _status(self.rest, "/readyz") != 200:
                if self._process.returncode is not None:
                    raise RuntimeError(f"The server ended:\n{self.log.read_text()}")
                await asyncio.sleep(0.05)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def restart(self) -> None:
        """Ends the server as Kubernetes does, and starts the next one."""
        await self.end(signal.SIGTERM)
        await self.start()

    async def end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self.codes.append(await self._process.wait())


# --- the load ---


async def _status(port: int, path: str) -> int:
    """0 if nothing answers."""
    with suppress(OSError, asyncio.IncompleteReadError, ValueError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: ferry\r\nConnection: close\r\n\r\n".encode())
            return (await _read_reply(reader))[0]
        finally:
            writer.close()
    return 0


async def _listens(port: int) -> bool:
    try:
        (await asyncio.open_connection("127.0.0.1", port))[1].close()
    except OSError:
        return False
    return True


async def _read_reply(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection may be used again."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length), b"connection: close" not in head


class HttpClient:
    """One client. It sends no request again, whatever happened to it."""

    def __init__(self, port: int, target: Target, *, kept: bool) -> None:
        self._port = port
        close = "" if kept else "Connection: close\r\n"
        head = f"POST {target.path} HTTP/1.1\r\nHost: ferry\r\n{close}Content-Length: {len(target.body)}\r\n\r\n"
        self._request = head.encode() + target.body
        self._answer = json.dumps({"predictions": target.answer.tolist()}, separators=(",", ":")).encode()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self) -> None:
        """Raises whatever shows that the request was lost."""
        if self._streams is None or self._streams[0].at_eof():
            await self.close()
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(self._request)
        status, body, stays = await _read_reply(reader)
        if not stays:
            await self.close()
        if status != 200 or body != self._answer:
            raise ValueError(f"{status} {body[:200]!r}")

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


class GrpcClient:
    """One channel, with no more retries than every client has: of a call that never left, or that GOAWAY says was not
    begun (gRFC A6, transparent retries).
    """

    def __init__(self, port: int, target: Target) -> None:
        self._address = f"127.0.0.1:{port}"
        self._channel: grpc.aio.Channel | None = None
        self._request = target.grpc_request
        self._answer = struct.pack(f"<{target.answer.size}f", *target.answer.flat)

    async def ask(self) -> None:
        """Raises grpc.aio.AioRpcError, or ValueError for a wrong answer."""
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)])
        reply: bytes = await self._channel.unary_unary(_PREDICT)(self._request, timeout=HANG_S)
        if self._answer not in reply:
            raise ValueError(f"{reply!r}")

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
        self._channel = None


def _client(way: str, port: int, target: Target) -> HttpClient | GrpcClient:
    return GrpcClient(port, target) if way == "grpc" else HttpClient(port, target, kept=way == "kept")


async def _run(client: HttpClient | GrpcClient, load: Load, pause_s: float, chance: random.Random) -> None:
    try:
        while not load.ended:
            load.sent += 1
            began_s = time.monotonic()
            try:
                await client.ask()
                load.seconds.append(time.monotonic() - began_s)
            except (OSError, ValueError, asyncio.IncompleteReadError, grpc.aio.AioRpcError) as error:
                load.failures.append(f"{time.strftime('%H:%M:%S')} {error!r}"[:600])
                if len(load.failures) <= _SHOWN:
                    print(f"  {load.way}: {load.failures[-1]}", flush=True)
                await client.close()
                await asyncio.sleep(_AFTER_FAILURE_S)
            if pause_s:
                await asyncio.sleep(chance.uniform(0, pause_s))
            elif load.complete:  # until all restarts are done
                await asyncio.sleep(0.02)
    finally:
        await client.close()


# --- what is between ---


def proxy_configuration(balancer: str, check_s: float, ports: dict[str, int], slots: Sequence[Slot]) -> str:
    """HAProxy's, with a port for each way."""
    text = [_PROXY.format(check_ms=round(1000 * check_s))]
    for way, port in ports.items():
        layer7 = balancer == "http"
        more = {"kept": "http-reuse always", "each": "http-reuse never", "grpc": "http-reuse always"}[way]
        h2 = " proto h2 check-proto h1" if layer7 and way == "grpc" else ""
        mode, bind = ("http", "proto h2" if way == "grpc" else "") if layer7 else ("tcp", "")
        text.append(_LISTEN.format(way=way, mode=mode, port=port, bind=bind, more=more if layer7 else ""))
        for number, slot in enumerate(slots):
            there = slot.grpc if way == "grpc" else slot.rest
            text.append(f"    server s{number} 127.0.0.1:{there} check port {slot.rest}{h2}\n")
    return "".join(text)


@asynccontextmanager
async def proxy(folder: Path, configuration: str, ports: Iterable[int]) -> AsyncIterator[None]:
    tool = shutil.which("haproxy", path=f"/usr/sbin:{os.environ.get('PATH', '')}")
    if tool is None:
        raise FileNotFoundError("HAProxy is missing (Debian: haproxy)")
    (folder / "haproxy").write_text(configuration)
    process = await asyncio.create_subprocess_exec(
        tool, "-f", str(folder / "haproxy"), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(HANG_S):
            while not all([await _listens(port) for port in ports]):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _swap(models: Path, target: Target, swaps: list[int]) -> None:
    """Puts a version beside the one that is served, and takes that away when the new one has had time to load."""
    number, spare = 1, models.parent / "spare"
    target.make(spare)
    while True:
        await asyncio.to_thread(shutil.copytree, spare, models.parent / "next")
        (models.parent / "next").rename(models / target.model / str(number + 1))
        await asyncio.sleep(_SWAP_EVERY_S)
        await asyncio.to_thread(shutil.rmtree, models / target.model / str(number))
        number += 1
        swaps.append(number)


# --- all of it ---


@dataclass
class Result:
    loads: Sequence[Load]
    restarts: int
    codes: Sequence[int]
    swaps: int
    seconds: float

    @property
    def failed(self) -> int:
        return sum(len(load.failures) for load in self.loads)

    @property
    def passes(self) -> bool:
        return not self.failed and not any(self.codes) and all(load.complete for load in self.loads)

    def text(self) -> str:
        lines = [load.line() for load in self.loads]
        lines.append(
            f"{self.restarts} restarts, exit codes {sorted(set(self.codes))}, {self.swaps} versions swapped,"
            f" {self.seconds:.0f} s"
        )
        return "\n".join(lines)


async def measure(options: argparse.Namespace) -> Result:
    target = light_target(options.frontends) if options.light else real_target()
    with tempfile.TemporaryDirectory(prefix="ferry-restart-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        target.make(folder / "models" / target.model / "1")
        settings = {
            "frontends": options.frontends,
            "drain_grace_s": options.grace,
            "warm_up": not options.light,
            "load_budget_s": 0.5,
        }
        slots = [Slot(target, folder, number, settings) for number in range(options.servers)]
        try:
            await asyncio.gather(*(slot.start() for slot in slots))
            ports = {way: free_port() for way in options.ways}
            configuration = proxy_configuration(options.balancer, options.check, ports, slots)
            async with proxy(folder, configuration, ports.values()):
                await asyncio.sleep(_CHECKS * options.check)
                return await _under_load(options, target, folder, slots, ports)
        finally:
            await asyncio.gather(*(slot.end(signal.SIGKILL) for slot in slots if slot.running))


async def _under_load(
    options: argparse.Namespace, target: Target, folder: Path, slots: Sequence[Slot], ports: dict[str, int]
) -> Result:
    began_s = time.monotonic()
    chance = random.Random(1)  # of pauses
    loads = [Load(way, options.requests) for way in options.ways]
    clients: list[asyncio.Task[None]] = []
    for load in loads:
        for number in range(options.clients):
            pause_s = _MOST_PAUSE_S if number % _PAUSING == _PAUSING - 1 else 0.0
            client = _client(load.way, ports[load.way], target)
            clients.append(asyncio.create_task(_run(client, load, pause_s, chance)))
    swaps: list[int] = []
    swapping = asyncio.create_task(_swap(folder / "models", target, swaps)) if options.swap else None

    restarts = 0
    while restarts < len(slots) or not all(load.complete for load in loads):
        await slots[restarts % len(slots)].restart()
        restarts += 1
        await asyncio.sleep(_CHECKS * options.check)
        progress = f"{time.strftime('%H:%M:%S')} " + ", ".join(
            f"{load.way} {load.sent} ({len(load.failures)} failed)" for load in loads
        )
        print(f"  restart {restarts}: {progress}", flush=True)

    for load in loads:
        load.ended = True
    if swapping is not None:
        swapping.cancel()
    await asyncio.gather(*clients)
    codes = [code for slot in slots for code in slot.codes]
    return Result(loads, restarts, codes, len(swaps), time.monotonic() - began_s)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.rolling_restart", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=100_000, help="of each way, at least")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--balancer", choices=BALANCERS, default="http")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=8, help="of each way")
    parser.add_argument("--frontends", type=int, default=0)
    parser.add_argument("--grace", type=float, default=3.0, help="drain_grace_s")
    parser.add_argument("--check", type=float, default=1.0, help="seconds between HAProxy's checks")
    parser.add_argument("--swap", action="store_true", help="versions of the model, too")
    parser.add_argument("--light", action="store_true", help="a model in numpy")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parsed(arguments)
    result = asyncio.run(measure(options))
    print(result.text())
    return 0 if result.passes else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
