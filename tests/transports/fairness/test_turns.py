"""Nobody takes more than a part of a turn of the event loop; what waits comes in order, and is forgotten in time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from app.transports.fairness.fair_queue import Share
from app.transports.fairness.turns import PEER_S, PIECE_S, Turns
from tests.support.fakes import run_in_fake_time


class Loop:
    """An event loop by hand: `turn` runs what was to be called in the next one."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._soon: deque[Callable[[], None]] = deque()
        self.turns = Turns(self._soon.append, lambda: self.now_s)
        self.done: list[str] = []

    def turn(self) -> bool:
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        return bool(self._soon)

    def work(self, name: str, seconds: float) -> Callable[[], None]:
        def work() -> None:
            self.now_s += seconds
            self.done.append(name)

        return work


work_of_peers = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.floats(0.0, 2 * PEER_S)), min_size=1, max_size=40
)


@given(work_of_peers)
def test_a_turn_lasts_as_long_as_a_share_and_a_piece_of_each_peer(all_work: list[tuple[str, int, float]]) -> None:
    loop = Loop()
    shares = {(peer, number): Share(peer) for peer in "abc" for number in range(3)}
    for name, (peer, number, seconds) in enumerate(all_work):
        loop.turns.later(shares[peer, number], loop.work(f"{peer}{number} {name}", seconds))
    longest = max(seconds for _, _, seconds in all_work)
    goes_on = True
    while goes_on:
        waiting, before = {each[0] for each in all_work}, loop.now_s
        goes_on = loop.turn()
        assert loop.now_s - before <= len(waiting) * (PEER_S + longest) + 1e-9

    # Nothing is lost, each connection keeps its order, and nothing is kept.
    for peer, number in shares:
        expected = [f"{peer}{number} {name}" for name, each in enumerate(all_work) if each[:2] == (peer, number)]
        assert [each for each in loop.done if each.startswith(f"{peer}{number}")] == expected
    assert not loop.turns._queue
    assert not loop.turns._spent_s


def test_work_is_done_at_once_until_the_time_of_its_peer_is_over() -> None:
    loop = Loop()
    first, second, other = Share("a"), Share("a"), Share("b")
    loop.turns.run(first, loop.work("first", PEER_S))
    loop.turns.run(second, loop.work("second", 0.0))
    loop.turns.run(first, loop.work("first again", 0.0))
    loop.turns.run(other, loop.work("other", 0.0))
    assert loop.done == ["first", "other"]
    loop.turn()
    assert loop.done == ["first", "other", "second", "first again"]


def test_a_connection_reads_less_at_a_time_where_others_of_its_peer_wait() -> None:
    loop = Loop()
    turns, share = loop.turns, Share("a")
    assert turns.began(share, 1.0) == 1.0 + PEER_S
    turns.later(Share("b"), loop.work("of another peer", 0.0))
    assert turns.began(share, 1.0) == 1.0 + PEER_S
    turns.later(Share("a"), loop.work("of its peer", 0.0))
    assert turns.began(share, 1.0) == 1.0 + PIECE_S
    loop.now_s = PEER_S
    turns.ended(share, 0.0)
    assert turns.began(share, 1.0) <= 1.0
    loop.turn()
    loop.turn()
    assert turns.began(share, 1.0) == 1.0 + PEER_S


def test_what_waits_of_a_closed_connection_is_forgotten() -> None:
    loop = Loop()
    closed, other = Share("a"), Share("a")
    loop.turns.later(closed, loop.work("closed", 0.0))
    loop.turns.later(other, loop.work("other", 0.0))
    loop.turns.forget(closed)
    loop.turns.later(closed, loop.work("too late", 0.0))
    assert not loop.turns.waits(closed)
    while loop.turn():
        pass
    assert loop.done == ["other"]


def test_work_that_fails_keeps_no_other_from_its_turn() -> None:
    loop = Loop()
    loop.turns.later(Share("a"), partial(int, "x"))
    loop.turns.later(Share("a"), loop.work("other", 0.0))
    loop.turn()
    assert loop.done == ["other"]


# --- tasks ---


def _played(scenario: Callable[[Loop], Awaitable[None]]) -> None:
    """In a real event loop, with a clock by hand."""

    async def main() -> None:
        loop = Loop()
        loop.turns = Turns(asyncio.get_running_loop().call_soon, lambda: loop.now_s)
        await scenario(loop)
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        assert not loop.turns._queue
        assert not loop.turns._spent_s

    run_in_fake_time(main())


@settings(max_examples=30)
@given(st.lists(st.floats(0.0, 2 * PEER_S), min_size=1, max_size=40))
def test_tasks_step_in_order_and_a_turn_is_no_longer_than_a_share_and_a_step(
    steps: list[float],
) -> None:
    async def scenario(loop: Loop) -> None:
        share = Share("a")
        turns: list[float] = [0.0]

        async def step(number: int, seconds: float) -> None:
            await loop.turns.may_step(share)
            loop.now_s += seconds
            loop.done.append(str(number))

        async def watch() -> None:
            while len(loop.done) < len(steps):
                turns.append(loop.now_s)
                await asyncio.sleep(0.0)

        await asyncio.gather(watch(), *(step(number, seconds) for number, seconds in enumerate(steps)))
        assert loop.done == [str(number) for number in range(len(steps))]
        # The loop may begin to look within a share: two of them are the most that lie between two looks.
        assert all(later - earlier <= 2 * (PEER_S + max(steps)) + 1e-9 for earlier, later in pairwise(turns))

    _played(scenario)


def test_a_lone_task_does_not_wait() -> None:
    async def scenario(loop: Loop) -> None:
        waiting = loop.turns.may_step(Share("a"))
        try:
            waiting.send(None)
        except StopIteration:
            return
        raise AssertionError("it waits")

    _played(scenario)


def test_tasks_of_a_closed_connection_go_on_at_once() -> None:
    async def scenario(loop: Loop) -> None:
        share = Share("a")
        await loop.turns.may_step(share)
        loop.now_s += PEER_S
        waiting = [asyncio.ensure_future(loop.turns.may_step(share)) for _ in range(3)]
        await asyncio.sleep(0.0)
        loop.turns.forget(share)
        await asyncio.gather(*waiting)

    _played(scenario)


def test_a_task_that_is_cancelled_while_it_waits_takes_nobodys_turn() -> None:
    async def scenario(loop: Loop) -> None:
        share, other = Share("a"), Share("a")
        await loop.turns.may_step(share)
        loop.now_s += PEER_S
        cancelled = asyncio.ensure_future(loop.turns.may_step(share))
        waits = asyncio.ensure_future(loop.turns.may_step(other))
        await asyncio.sleep(0.0)
        cancelled.cancel()
        await waits
        assert cancelled.done()

    _played(scenario)


def test_a_connection_that_ends_with_tasks_that_were_woken_too_late_keeps_no_other_from_its_turn() -> None:
    async def scenario(loop: Loop) -> None:
        share, peer, other = Share("a"), Share("b"), Share("a")

        async def step() -> None:
            await loop.turns.may_step(share)
            loop.now_s += PEER_S

        async def end_the_connection() -> None:
            await loop.turns.may_step(peer)
            loop.now_s += PEER_S
            await loop.turns.may_step(peer)
            assert loop.turns._woken_too_late
            loop.turns.forget(share)
            for each in steps:
                each.cancel()

        steps = [asyncio.ensure_future(step()) for _ in range(3)]
        await asyncio.ensure_future(end_the_connection())  # behind them
        async with asyncio.timeout(1.0):
            await asyncio.gather(*(loop.turns.may_step(other) for _ in range(2)))

    _played(scenario)


def test_a_task_steps_before_the_work_behind_it_however_much_of_that_there_is() -> None:
    async def scenario(loop: Loop) -> None:
        reads, calls = Share("a"), Share("a")

        def read() -> None:
            loop.now_s += PEER_S
            if not task.done() and len(loop.done) < 100:
                loop.done.append("read")
                loop.turns.later(reads, read, again=True)

        loop.now_s += PEER_S
        loop.turns.ended(calls, 0.0)
        task = asyncio.ensure_future(loop.turns.may_step(calls))
        loop.turns.later(reads, read)
        await task
        assert len(loop.done) <= 2

    _played(scenario)


def test_there_is_one_for_an_event_loop() -> None:
    async def main() -> None:
        assert Turns.of_loop() is Turns.of_loop()

    run_in_fake_time(main())
