"""Does a server over TLS stay as it is under many kinds of honest clients? At a modest rate, for as long as you like.

    python -m bench.soak [--minutes 15] [--renew-s 120] [--json FILE]

Clients speak HTTP/1.1, HTTP/2 and gRPC: over a connection that is kept and over a new one for each request; with
deadlines that hold and that cannot; such that go away before their answer; and such that read a long answer slowly.
Meanwhile the server's certificate is renewed again and again, and a new connection has to get the new one.

Every answer is compared with that of the SavedModel. No kept connection of HTTP may end, no call notice that one of
gRPC gives way to its age, no answer be wrong or missing, no error come but 503 and 504 (DEADLINE_EXCEEDED) where a
deadline could not hold. RSS and descriptors are printed for each tenth: after the first tenth RSS may grow by 5 % and
descriptors by as many as there are clients. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensor
from bench.memory import growth_percent
from bench.models import ensure_models, read_samples, saved_model
from bench.support.cache import ROOT
from bench.support.figures import save
from bench.support.forms import FORMS, Array, agrees
from bench.support.live_server import cpu_seconds, is_ready, resident_mib, started_process
from tests.support.processes import free_port
from tests.support.tensor_protos import encode_tensor
from tests.transports.tls.certificates import Authority

_MODEL, _INPUT, _OUTPUT = "mlp", "x", "scores"
_INFER = f"/v2/models/{_MODEL}/infer"
_PREDICT = "/tensorflow.serving.PredictionService/Predict"

#: Seconds between two requests of a client. Chosen: all together take less than a third of a core.
_KEPT_S, _NEW_S, _DEADLINE_S, _LEAVES_S, _SLOW_S = 0.1, 0.5, 0.2, 0.3, 15.0

#: Rows of a long answer, 960 KB, and how it is read: in 12 s, and most of it has to wait in the server.
_LONG_ROWS, _PIECE_BYTES, _PAUSE_S = 60_000, 16_384, 0.2
_SMALL_BUFFER = ((socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE_BYTES),)

#: Within so many seconds a new connection has the new certificate. Chosen: docs/deploy.md says two.
_RENEWED_WITHIN_S = 10.0

_LATE = frozenset({503, 504})
_LATE_CODES = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}

Request = message_class("tensorflow.serving.PredictRequest")
Response = message_class("tensorflow.serving.PredictResponse")


@dataclass
class Soak:
    """What clients share: where the server is, what they ask, and what they saw."""

    port: int
    grpc_port: int
    authority: Path
    rows: Array
    expected: Array
    seen: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)

    def http(self, http2: bool, socket_options: Sequence[tuple[int, int, int]] = ()) -> httpx.AsyncClient:
        carrier = httpx.AsyncHTTPTransport(
            verify=self.tls(), http1=not http2, http2=http2, socket_options=socket_options
        )
        return httpx.AsyncClient(base_url=f"https://127.0.0.1:{self.port}", transport=carrier, timeout=60)

    def channel(self) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(self.authority.read_bytes())
        own = (("grpc.use_local_subchannel_pool", 1),)  # or all channels of a process share a connection
        return grpc.aio.secure_channel(f"127.0.0.1:{self.grpc_port}", credentials, options=own)

    def check(self, client: str, answer: Array, expected: Array) -> None:
        self.seen[client] += 1
        if answer.size == 0 or not agrees(answer, expected):
            self.fault(f"{client}: a wrong answer, {answer.reshape(-1)[:4]} instead of {expected.reshape(-1)[:4]}")

    def fault(self, text: str) -> None:
        self.faults.append(f"{time.strftime('%H:%M:%S')} {text}")
        print(f"FAULT {text}", flush=True)


class HttpClients:
    """Clients of HTTP/1.1 or HTTP/2."""

    def __init__(self, soak: Soak, http2: bool) -> None:
        self._soak, self._http2, self._name = soak, http2, "HTTP/2" if http2 else "HTTP/1.1"
        self._connects: Counter[str] = Counter()
        form = FORMS["v2-binary-rows"]
        self._read = form.read
        self._one = form.write(_INPUT, soak.rows[:1])
        self._long = form.write(_INPUT, np.resize(soak.rows, (_LONG_ROWS, *soak.rows.shape[1:])))
        self._long_answer = np.resize(soak.expected, (_LONG_ROWS, *soak.expected.shape[1:]))

    async def kept(self, client: httpx.AsyncClient) -> None:
        await self._ask(client, f"{self._name} kept")

    async def new(self, _: httpx.AsyncClient) -> None:
        async with self._soak.http(self._http2) as client:
            await self._ask(client, f"{self._name} new")

    async def deadline(self, client: httpx.AsyncClient) -> None:
        """In turn one that holds and one that cannot."""
        name = f"{self._name} deadline"
        if self._soak.seen[name] % 2:
            await self._ask(client, name, {"x-request-timeout-ms": "0.01"}, may_be=_LATE)
        else:
            await self._ask(client, name, {"x-request-timeout-ms": "5000"})

    async def leaves(self, _: httpx.AsyncClient) -> None:
        """Goes away in or shortly after its handshake, or while its answer is computed."""
        name = f"{self._name} leaves"
        self._soak.seen[name] += 1
        with contextlib.suppress(TimeoutError, httpx.HTTPError, ValueError):  # httpx does not always end well
            async with (
                asyncio.timeout(0.004 + 0.0005 * (self._soak.seen[name] % 7)),
                self._soak.http(self._http2) as own,
            ):
                await own.post(_INFER, content=self._one.content, headers=self._one.headers)

    async def slow(self, _: httpx.AsyncClient) -> None:
        name, content = f"{self._name} slow", bytearray()
        headers = {**self._long.headers, "accept-encoding": "identity"}
        async with (
            self._soak.http(self._http2, _SMALL_BUFFER) as client,
            client.stream("POST", _INFER, content=self._long.content, headers=headers) as reply,
        ):
            async for piece in reply.aiter_raw(_PIECE_BYTES):
                content += piece
                await asyncio.sleep(_PAUSE_S)
        self._heard(name, reply, bytes(content), self._long_answer, frozenset())

    async def _ask(
        self,
        client: httpx.AsyncClient,
        name: str,
        headers: dict[str, str] | None = None,
        *,
        may_be: frozenset[int] = frozenset(),
    ) -> None:
        reply = await client.post(
            _INFER,
            content=self._one.content,
            headers={**self._one.headers, **(headers or {})},
            extensions={"trace": self._counting(name)},
        )
        self._heard(name, reply, reply.content, self._soak.expected[:1], may_be)

    def _heard(self, name: str, reply: httpx.Response, content: bytes, expected: Array, may_be: frozenset[int]) -> None:
        if reply.status_code in may_be:
            self._soak.seen[name] += 1
        elif reply.status_code != 200:
            self._soak.seen[name] += 1
            self._soak.fault(f"{name}: status {reply.status_code} {content[:200]!r}")
        else:
            self._soak.check(name, self._read(dict(reply.headers), content), expected)
        if self._connects[name] > 1 and name.endswith((" kept", " deadline")):
            self._soak.fault(f"{name}: its connection ended")
            self._connects[name] = 1

    def _counting(self, name: str) -> Callable[[str, Any], Awaitable[None]]:
        async def trace(event: str, _: Any) -> None:
            self._connects[name] += event == "connection.connect_tcp.complete"

        return trace


class GrpcClients:
    """Clients of TensorFlow Serving's gRPC. Kept connections give way to their age, which no call may notice."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._one = self._message(soak.rows[:1])
        self._long = self._message(np.resize(soak.rows, (_LONG_ROWS, *soak.rows.shape[1:])))
        self._long_answer = np.resize(soak.expected, (_LONG_ROWS, *soak.expected.shape[1:]))

    async def kept(self, channel: grpc.aio.Channel) -> None:
        await self._ask(channel, "gRPC kept")

    async def new(self, _: grpc.aio.Channel) -> None:
        async with self._soak.channel() as channel:
            await self._ask(channel, "gRPC new")

    async def deadline(self, channel: grpc.aio.Channel) -> None:
        cannot_hold = self._soak.seen["gRPC deadline"] % 2 == 1
        await self._ask(channel, "gRPC deadline", within_s=0.0005 if cannot_hold else 5, may_be_late=cannot_hold)

    async def leaves(self, channel: grpc.aio.Channel) -> None:
        self._soak.seen["gRPC leaves"] += 1
        call = channel.unary_unary(_PREDICT)(self._one)
        await asyncio.sleep(0.0005 * (self._soak.seen["gRPC leaves"] % 7))
        call.cancel()

    async def slow(self, channel: grpc.aio.Channel) -> None:
        """gRPC's library reads for its client: here the long answer is what counts."""
        content = await channel.unary_unary(_PREDICT)(self._long)
        self._check("gRPC long", content, self._long_answer)

    async def _ask(
        self, channel: grpc.aio.Channel, name: str, within_s: float | None = None, *, may_be_late: bool = False
    ) -> None:
        try:
            content = await channel.unary_unary(_PREDICT)(self._one, timeout=within_s)
        except grpc.aio.AioRpcError as error:
            self._soak.seen[name] += 1
            if not (may_be_late and error.code() in _LATE_CODES):
                self._soak.fault(f"{name}: {error.code()} {error.details()}")
        else:
            self._check(name, content, self._soak.expected[:1])

    def _check(self, name: str, content: bytes, expected: Array) -> None:
        self._soak.check(
            name, decode_tensor(_OUTPUT, Response.FromString(content).outputs[_OUTPUT], len(content)), expected
        )

    def _message(self, rows: Array) -> bytes:
        request = Request()
        request.model_spec.name = _MODEL
        encode_tensor(rows, request.inputs[_INPUT], as_content=True)
        content: bytes = request.SerializeToString()
        return content


async def again_and_again(soak: Soak, act: Any, client: Any, every_s: float) -> None:
    """Until it is cancelled. Any failure of a request is a fault of the server."""
    async with client:
        while True:
            try:
                await act(client)
            except (httpx.HTTPError, grpc.aio.AioRpcError, OSError, ValueError) as error:
                soak.fault(f"{act.__qualname__}: {error!r}")
            await asyncio.sleep(every_s)


async def renew(soak: Soak, authority: Authority, certificate: Path, key: Path, every_s: float) -> None:
    """Again and again; a new connection has to get the new certificate."""
    days = 90
    while True:
        await asyncio.sleep(every_s)
        days += 1
        pair = await asyncio.to_thread(authority.issue, days=days)
        before = await served_serial(soak)
        os.replace(pair.certificate, certificate)
        os.replace(pair.key, key)
        end_s = time.monotonic() + _RENEWED_WITHIN_S
        while await served_serial(soak) == before:
            if time.monotonic() > end_s:
                soak.fault(f"a new connection gets the old certificate after {_RENEWED_WITHIN_S:g} s")
                break
            await asyncio.sleep(0.5)
        soak.seen["renewals"] += 1


async def served_serial(soak: Soak) -> str:
    _, writer = await asyncio.open_connection("127.0.0.1", soak.port, ssl=soak.tls())
    serial = str(writer.get_extra_info("peercert")["serialNumber"])
    writer.close()
    return serial


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def soaked(soak: Soak, pid: int, seconds: float, renewing: Awaitable[None]) -> list[dict[str, float]]:
    """Figures at the end of each tenth."""
    figures: list[dict[str, float]] = []
    tasks = [asyncio.ensure_future(renewing)]
    kinds: list[tuple[Any, Callable[[], Any]]] = [
        (HttpClients(soak, http2=False), lambda: soak.http(http2=False)),
        (HttpClients(soak, http2=True), lambda: soak.http(http2=True)),
        (GrpcClients(soak), soak.channel),
    ]
    for clients, connect in kinds:
        for act, every_s in (
            (clients.kept, _KEPT_S),
            (clients.new, _NEW_S),
            (clients.deadline, _DEADLINE_S),
            (clients.leaves, _LEAVES_S),
            (clients.slow, _SLOW_S),
        ):
            tasks.append(asyncio.create_task(again_and_again(soak, act, connect(), every_s)))
    began_s, before_s = time.monotonic(), cpu_seconds(pid)
    for tenth in range(1, 11):
        await asyncio.sleep(max(0.0, began_s + seconds * tenth / 10 - time.monotonic()))
        for task in tasks:
            if task.done():
                task.result()
        now_s = time.monotonic()
        core = (cpu_seconds(pid) - before_s) / (now_s - began_s)
        own_core = time.process_time() / (now_s - began_s)
        figures.append(
            {"rss_mib": resident_mib(pid), "descriptors": descriptors(pid), "core": core, "faults": len(soak.faults)}
        )
        print(
            f"{now_s - began_s:6.0f} s  {sum(soak.seen.values()):>8,} requests  {figures[-1]['rss_mib']:7.1f} MiB  "
            f"{figures[-1]['descriptors']:4} descriptors  {core:.2f} of a core (clients {own_core:.2f})  "
            f"{len(soak.faults)} faults",
            flush=True,
        )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--renew-s", type=float, default=120.0, help="seconds between two certificates")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    ensure_models()
    samples = read_samples(_MODEL)
    rows, expected = (np.stack([each[place] for each in samples]) for place in (0, 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = Authority(folder / "authority")
        first = authority.issue()
        certificate, key = folder / "tls.crt", folder / "tls.key"
        os.replace(first.certificate, certificate)
        os.replace(first.key, key)
        grpc_port, operator_port = free_port(), free_port()
        settings: dict[str, object] = {
            "models": saved_model(_MODEL).parent.parent,
            "grpc_port": grpc_port,
            "operator_port": operator_port,
            "operator_port_tls": "off",
            "max_queue_size": 10 * _LONG_ROWS,
            "tls_certificate": certificate,
            "tls_key": key,
        }
        with started_process(ROOT, **settings) as (port, process):
            while not is_ready(operator_port):
                time.sleep(0.1)
            soak = Soak(port, grpc_port, authority.certificate, rows, expected)
            renewing = renew(soak, authority, certificate, key, options.renew_s)
            figures = asyncio.run(soaked(soak, process.pid, 60 * options.minutes, renewing))
    print(", ".join(f"{kind} {count:,}" for kind, count in sorted(soak.seen.items())))
    growth = growth_percent([each["rss_mib"] for each in figures])
    more = figures[-1]["descriptors"] - figures[0]["descriptors"]
    print(f"RSS {growth:+.1f} % after the first tenth, {more:+} descriptors, {len(soak.faults)} faults")
    save(options.json, {"figures": figures, "faults": soak.faults})
    sys.exit(bool(soak.faults) or growth > 5 or more > 15)


if __name__ == "__main__":
    main()
