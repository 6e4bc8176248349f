"""A turn of the event loop lasts a few milliseconds, however much has arrived: others are answered between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from app.transports.coalescing.requests_of_a_turn import BEGIN_S, MOST_BYTES, MOST_TOGETHER
from app.transports.http.exchange import Computation, Exchange
from bench.simulator.simulated_time import work
from tests.support.fakes import run_in_fake_time
from tests.transports.http1.connection_world import COMPUTE_S, World, request

_REQUEST_S = 0.001


class Slow:
    """A world in which reading a request takes a millisecond, and what it began in each turn of the event loop."""

    def __init__(self, inline_s: float = 0.0, calls_s: float = 0.0) -> None:
        self.world = World(True, inline_s=inline_s, calls_s=calls_s)
        self.turns: list[list[bytes]] = []
        protocol: Any = self.world.protocols["v1"]
        self._begin, self._together = protocol.begin, protocol.begin_coalesced
        protocol.begin, protocol.begin_coalesced = self.begin, self.begin_coalesced

    def begin(self, exchange: Exchange, body: bytes) -> Computation:
        work(_REQUEST_S)
        self.turns[-1].append(body)
        return cast(Computation, self._begin(exchange, body))

    def begin_coalesced(self, head: Any, bodies: Sequence[bytes], deadline_s: float) -> Any:
        coalesced = self._together(head, bodies, deadline_s)
        if coalesced is not None:
            self.turns[-1] += bodies
        return coalesced

    def arrive(self, bodies: Sequence[bytes]) -> None:
        """All are readable in one turn, each on a connection of its own."""
        for body in bodies:
            connection, _ = self.world.connect()
            connection.data_received(request(body=body))

    @property
    def begun(self) -> list[bytes]:
        return [body for turn in self.turns for body in turn]

    async def turn(self) -> None:
        self.turns.append([])
        await asyncio.sleep(0)

    async def begin_all(self, count: int) -> None:
        while len(self.begun) < count:
            await self.turn()


def bodies(count: int, first: int = 0, size: int = 0) -> list[bytes]:
    texts = [b'{"instances": [[%d.0, 0.0]]}' % number for number in range(first, first + count)]
    return [text.ljust(size) for text in texts]


def test_a_turn_begins_requests_for_a_few_milliseconds_and_the_rest_in_order() -> None:
    async def main() -> None:
        slow = Slow()
        slow.arrive(bodies(300))
        await slow.begin_all(300)
        assert max(map(len, slow.turns)) <= BEGIN_S / _REQUEST_S + 1
        assert slow.begun == bodies(300)

    run_in_fake_time(main())


def test_a_probe_is_answered_after_a_few_of_the_requests_that_arrived_before_it() -> None:
    async def main() -> None:
        slow = Slow()
        slow.arrive(bodies(300))
        slow.world.connection.data_received(request("/v1/models/m", b"", method="GET"))
        while not slow.world.transport.out:
            await slow.turn()
        assert slow.world.transport.out.startswith(b"HTTP/1.1 200")
        assert len(slow.begun) <= 5 * (BEGIN_S / _REQUEST_S + 1)
        await slow.begin_all(300)

    run_in_fake_time(main())


def test_what_arrives_meanwhile_begins_behind_what_waits() -> None:
    async def main() -> None:
        slow = Slow()
        slow.arrive(bodies(20))
        await slow.turn()
        slow.arrive(bodies(20, first=20))
        await slow.begin_all(40)
        assert slow.begun == bodies(40)

    run_in_fake_time(main())


def test_a_request_whose_client_leaves_before_its_turn_is_not_begun() -> None:
    async def main() -> None:
        slow = Slow()
        clients = [slow.world.connect() for _ in range(20)]
        for (connection, _), body in zip(clients, bodies(20), strict=True):
            connection.data_received(request(body=body))
        await slow.turn()
        clients[-1][0].connection_lost(None)
        await asyncio.sleep(COMPUTE_S)
        assert slow.begun == bodies(19)

    run_in_fake_time(main())


@pytest.mark.parametrize(("count", "size"), [(2 * MOST_TOGETHER + 1, 0), (600, MOST_BYTES // 256)])
def test_so_many_requests_and_bytes_are_coalesced_in_a_turn(count: int, size: int) -> None:
    async def main() -> None:
        slow = Slow(inline_s=2 * COMPUTE_S)
        slow.turns.append([])
        await slow.world.hear(request(), 2 * COMPUTE_S)  # requests are not coalesced before the first
        slow.turns.clear()
        slow.arrive(bodies(count, size=size))
        await slow.begin_all(count)
        most = min(MOST_TOGETHER, MOST_BYTES // size if size else count)
        assert [len(turn) for turn in slow.turns if turn] == [*[most] * (count // most), count % most]

    run_in_fake_time(main())


def test_requests_that_arrive_together_share_a_short_call_though_they_begin_in_several_turns() -> None:
    async def main() -> None:
        slow = Slow(calls_s=0.001)
        slow.arrive(bodies(20))
        await slow.begin_all(20)
        await asyncio.sleep(COMPUTE_S)
        assert [len(call) for call in slow.world.loaded.function.calls] == [32]

    run_in_fake_time(main())


def test_a_fault_in_beginning_one_keeps_no_other_from_beginning() -> None:
    class Fault(BaseException):
        """Not even an Exception, which would be that request's answer."""

    async def main() -> None:
        slow = Slow()
        begin = slow.world.protocols["v1"].begin

        def faulty(exchange: Exchange, body: bytes) -> Computation:
            if body == bodies(1)[0]:
                raise Fault
            return begin(exchange, body)

        protocol: Any = slow.world.protocols["v1"]
        protocol.begin = faulty
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        slow.arrive(bodies(20))
        await slow.begin_all(19)
        assert slow.begun == bodies(19, first=1)

    run_in_fake_time(main())
