"""Clients that do harm to a server on the loopback interface, each kind in a process of its own, until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import grpc
import httpx

from app.bench.load_connection import ServerReply
from app.bench.open_loop import NO_ANSWER, LoadTarget, OpenLoopResult, open_loop, run_precisely
from bench.support.heavy_server import HeavyRequests
from tests.hostile.attack import Attack
from tests.hostile.hostile_requests import HostileRequests
from tests.hostile.served import served_inputs

#: Seconds between two bytes of a slow client. Chosen: so often that a limit on silence alone does not end it.
_DRIP_S = 2.0

#: Failures of requests that the server may reject.
_REJECTED = ("status 503", "status 504")

#: Slow clients come from this many addresses, none of them that of the honest ones.
_ADDRESSES = 200

_HEAD = b"POST /v2/models/transformer/infer HTTP/1.1\r\nHost: server\r\n"

#: What is sent at once, and what follows byte by byte: nothing, a head without end, a body without end.
_SLOW = ((b"", b""), (_HEAD, b"X-Slow: aaaaaaaaaaaaaaaa\r\n"), (_HEAD + b"Content-Length: 1000000\r\n\r\n", b" "))


@dataclass(frozen=True, slots=True)
class Damage:
    """What one kind of attack did, and which answers it got that no server may give."""

    told: str
    faults: list[str]


@contextlib.contextmanager
def attacks(*kinds: Callable[[Event], Damage]) -> Iterator[list[Damage]]:
    """They run in processes of their own, all of them before the block begins; the list is filled at its end."""
    context = multiprocessing.get_context("spawn")
    stop, damages = context.Event(), list[Damage]()
    lines: list[Connection] = []
    processes = []
    for kind in kinds:
        ours, theirs = context.Pipe()
        process = context.Process(target=_attack, args=(kind, stop, theirs))
        process.start()
        lines.append(ours)
        processes.append(process)
    try:
        for line in lines:
            line.recv()
        yield damages
    finally:
        stop.set()
        damages += [line.recv() for line in lines]
        for process in processes:
            process.join()


def _attack(kind: Callable[[Event], Damage], stop: Event, line: Connection) -> None:
    os.nice(5)  # the honest ones measure
    line.send("begins")
    try:
        line.send(kind(stop))
    except Exception as error:  # the process that measures has to hear of any
        line.send(Damage("failed", [repr(error)]))


@dataclass(frozen=True, slots=True)
class SlowConnections:
    """This many connections at the same time; one that the server closes comes again."""

    port: int
    count: int

    def __call__(self, stop: Event) -> Damage:
        opened, faults = asyncio.run(self._all(stop))
        return Damage(f"{self.count} slow connections, {opened} opened in all", faults)

    async def _all(self, stop: Event) -> tuple[int, list[str]]:
        opened, faults = [0], list[str]()
        async with asyncio.TaskGroup() as tasks:
            slow = [tasks.create_task(self._one(number, opened, faults)) for number in range(self.count)]
            await asyncio.to_thread(stop.wait)
            for each in slow:
                each.cancel()
        return opened[0], faults

    async def _one(self, number: int, opened: list[int], faults: list[str]) -> None:
        first, drip = _SLOW[number % len(_SLOW)]
        await asyncio.sleep(_DRIP_S * number / self.count)
        while True:
            with contextlib.suppress(OSError):
                own = (f"127.0.1.{number % _ADDRESSES + 1}", 0)
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=own)
                opened[0] += 1
                try:
                    reply = await _drip(reader, writer, first, drip)
                finally:
                    writer.close()
                if reply[9:12].isdigit() and reply[9:10] == b"5" and reply[9:12] != b"503":
                    faults.append(f"a slow client got {reply[:100]!r}")
            await asyncio.sleep(_DRIP_S)


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes, drip: bytes) -> bytes:
    """Sends byte by byte until the server answers or closes; what it answered."""
    writer.write(first)
    for place in range(10**9):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRIP_S):  # wait_for loses the end of the attack if a reply comes just then
                return await reader.read(1000)
        if drip:
            writer.write(drip[place % len(drip) : place % len(drip) + 1])
    return b""


@dataclass(frozen=True, slots=True)
class UnendingBodies:
    """So many at a time, of which everything but the last byte is sent; who is rejected comes again."""

    port: int
    size: int
    count: int = 200

    def __call__(self, stop: Event) -> Damage:
        sent = asyncio.run(self._all(stop))
        return Damage(f"{self.count} bodies without end at a time, {sent / 2**20:.0f} MiB sent", [])

    async def _all(self, stop: Event) -> int:
        sent = [0]
        async with asyncio.TaskGroup() as tasks:
            unending = [tasks.create_task(self._one(sent)) for _ in range(self.count)]
            await asyncio.to_thread(stop.wait)
            for each in unending:
                each.cancel()
        return sent[0]

    async def _one(self, sent: list[int]) -> None:
        head, piece = _HEAD + f"Content-Length: {self.size}\r\n\r\n".encode(), b" " * 2**16
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(head)
                    for _ in range((self.size - 1) // len(piece)):
                        writer.write(piece)
                        await writer.drain()
                        sent[0] += len(piece)
                    await reader.read(1)  # until the server gives it up
                finally:
                    writer.close()
            await asyncio.sleep(_DRIP_S)


@dataclass(frozen=True, slots=True)
class Flood:
    """Good requests, far more of them than the server can answer, of one caller."""

    port: int
    rate: float
    deadline_s: float
    caller: str

    def __call__(self, stop: Event) -> Damage:
        requests = HeavyRequests(self.deadline_s, caller=self.caller)
        statuses, faults = Counter[int](), Counter[str]()

        def heard(reply: ServerReply, _: float) -> None:
            statuses[reply.status] += 1

        target, seed, unsent = LoadTarget("127.0.0.1", self.port), 0, 0
        while not stop.is_set():
            seed += 1
            load = run_precisely(
                open_loop(target, requests.bytes, self.rate, 1.0, seed=seed, check=requests.check, heard=heard)
            )
            unsent += load.unsent
            faults += faults_of(load)
        told = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
        return Damage(
            f"flood of {self.rate:.0f}/s: {told}; {unsent} could not be sent",
            [f"{count} x {what}" for what, count in faults.items()],
        )


def faults_of(load: OpenLoopResult) -> Counter[str]:
    """The ends of requests that no server may give. A request that the generator could not send is none of these."""
    faults = Counter({what: count for what, count in load.failures.items() if what not in _REJECTED})
    return faults - Counter({NO_ANSWER: load.unsent})


@dataclass(frozen=True, slots=True)
class Malformed:
    """Malformed requests of every protocol and form, a few at a time, as quickly as they are answered."""

    port: int
    grpc_port: int
    seed: int
    at_a_time: int = 2

    def __call__(self, stop: Event) -> Damage:
        return asyncio.run(self._all(stop))

    async def _all(self, stop: Event) -> Damage:
        url = f"http://127.0.0.1:{self.port}"
        async with (
            httpx.AsyncClient(base_url=url, timeout=60) as http,
            grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel,
        ):
            attack = Attack(self.port, channel, self.at_a_time)
            mutated: Iterator[Any] = iter(HostileRequests(await served_inputs(http), self.seed))
            await attack.send_all(takewhile(lambda _: not stop.is_set(), mutated))
        tally = attack.tally
        return Damage(f"{tally.requests} malformed requests", tally.violations)
