"""Pages are made once for all who ask, are never older than the question, and nothing of them is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from app.core.errors import ModelNotReady
from app.transports.rendered_pages import MOST_PAUSE_S, TOLD_IN_A_TURN, Pieces, RenderedPages
from bench.simulator.simulated_time import work
from tests.support.fakes import fake_time, run_in_fake_time


class Rendering:
    """A page that shows `state` as it was when it was begun, made in pieces of so many seconds.

    Attributes:
        begun: when each page was.
    """

    def __init__(self, pieces: int = 1, piece_s: float = 0.0, error: Exception | None = None) -> None:
        self.state = "before"
        self.begun: list[float] = []
        self.ended = 0
        self._pieces = pieces
        self._piece_s = piece_s
        self._error = error

    def __call__(self) -> Pieces[str]:
        self.begun.append(fake_time())
        shown = self.state
        try:
            for _ in range(self._pieces):
                work(self._piece_s)
                yield
            if self._error is not None:
                raise self._error
            return shown
        finally:
            self.ended += 1


def play(scenario: Callable[[RenderedPages], Awaitable[Any]]) -> None:
    async def main() -> None:
        pages = RenderedPages()
        await scenario(pages)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert repr(pages) == "<RenderedPages 0 asked, 0 made>", "nothing is kept"

    run_in_fake_time(main())


def asks(pages: RenderedPages, number: int, rendering: Rendering, key: object = "m") -> list[asyncio.Task[str]]:
    return [asyncio.create_task(pages.ask(key, rendering)) for _ in range(number)]


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_a_thousand_who_ask_at_once_get_one_page() -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering(pieces=100, piece_s=0.002)
        assert await asyncio.gather(*asks(pages, 1000, rendering)) == ["before"] * 1000
        assert len(rendering.begun) == 1

    play(scenario)


def test_who_asks_while_a_page_is_made_gets_the_next_one_which_shows_what_has_happened() -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering(pieces=10, piece_s=0.002)
        (first,) = asks(pages, 1, rendering)
        await turns(5)
        rendering.state = "after"
        second = asks(pages, 3, rendering)
        assert await first == "before"
        assert await asyncio.gather(*second) == ["after"] * 3
        assert len(rendering.begun) == 2

    play(scenario)


def test_who_asks_before_a_page_is_due_gets_one_that_is_made_then() -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering(piece_s=0.01)
        assert await pages.ask("m", rendering) == "before"
        (early,) = asks(pages, 1, rendering)
        await asyncio.sleep(0.05)
        rendering.state = "after"
        (later,) = asks(pages, 1, rendering)
        assert await asyncio.gather(early, later) == ["after", "after"]
        assert len(rendering.begun) == 2

    play(scenario)


@pytest.mark.parametrize(("pieces", "pause_s"), [(1, 0.02), (10, 0.2), (100, MOST_PAUSE_S)])
def test_the_pause_after_a_page_grows_with_what_it_took_up_to_half_a_second(pieces: int, pause_s: float) -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering(pieces, piece_s=0.002)
        for key in ("m", "n", "m"):  # whatever is asked
            await pages.ask(key, rendering)
        first, second, third = rendering.begun
        assert second - first == pytest.approx(pieces * 0.002 + pause_s)
        assert third - second == pytest.approx(pieces * 0.002 + pause_s)

    play(scenario)


def test_a_lone_ask_is_answered_at_once() -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering(pieces=10, piece_s=0.01)
        for _ in range(3):
            asked_s = fake_time()
            await pages.ask("m", rendering)
            assert rendering.begun[-1] == asked_s
            await asyncio.sleep(MOST_PAUSE_S)

    play(scenario)


def test_pages_are_made_one_at_a_time_in_the_order_of_the_asks() -> None:
    async def scenario(pages: RenderedPages) -> None:
        made, running = [], 0

        def render(key: str) -> Pieces[str]:
            nonlocal running
            running += 1
            for _ in range(5):
                assert running == 1
                work(0.002)
                yield
            running -= 1
            made.append(key)
            return key

        keys = ["b", "a", "c", "a"]
        asked = [asyncio.create_task(pages.ask(key, partial(render, key))) for key in keys]
        assert await asyncio.gather(*asked) == keys
        assert made == ["b", "a", "c"]

    play(scenario)


def test_a_page_gives_the_loop_back_after_each_millisecond() -> None:
    async def scenario(pages: RenderedPages) -> None:
        (asked,) = asks(pages, 1, Rendering(pieces=100, piece_s=0.00051))
        others = 0
        while not asked.done():
            await asyncio.sleep(0)
            others += 1
        assert 50 <= others <= 60

    play(scenario)


def test_answers_are_passed_on_some_in_a_turn() -> None:
    async def scenario(pages: RenderedPages) -> None:
        asked, told = asks(pages, 100, Rendering()), [0]
        while told[-1] < 100:
            await asyncio.sleep(0)
            told.append(sum(each.done() for each in asked))
        assert max(after - before for before, after in pairwise(told)) <= TOLD_IN_A_TURN

    play(scenario)


def test_an_error_goes_to_all_who_wait_and_the_next_page_is_made_again() -> None:
    async def scenario(pages: RenderedPages) -> None:
        failing = Rendering(error=ModelNotReady("gone"))
        found = await asyncio.gather(*asks(pages, 20, failing), return_exceptions=True)
        assert [str(each) for each in found] == ["gone"] * 20
        assert (len(failing.begun), failing.ended) == (1, 1)
        assert await pages.ask("m", Rendering()) == "before"

    play(scenario)


def test_a_page_for_which_nobody_waits_any_more_is_not_made() -> None:
    async def scenario(pages: RenderedPages) -> None:
        await pages.ask("m", Rendering(piece_s=0.01))
        rendering = Rendering()
        left = asks(pages, 3, rendering)
        await turns(2)
        for each in left:
            each.cancel()
        await asyncio.wait(left)
        await asyncio.sleep(1.0)
        assert rendering.begun == []

    play(scenario)


def test_a_page_is_not_made_to_its_end_when_all_have_left() -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering(pieces=1000, piece_s=0.002)
        one, other = asks(pages, 2, rendering)
        await turns(10)
        one.cancel()
        await turns(10)
        assert rendering.ended == 0, "the other waits"
        other.cancel()
        await asyncio.wait([one, other])
        await turns(2)
        assert rendering.ended == 1
        assert await pages.ask("m", Rendering()) == "before"

    play(scenario)


def test_who_leaves_takes_nothing_from_those_who_stay_and_those_who_come() -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering(pieces=10, piece_s=0.002)
        leaving, staying = asks(pages, 2, rendering)
        await turns(3)
        leaving.cancel()
        coming = asks(pages, 2, rendering)
        await turns(1)
        coming[0].cancel()
        assert await asyncio.gather(staying, coming[1]) == ["before", "before"]

    play(scenario)


def test_who_comes_when_the_last_one_leaves_is_answered() -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering(pieces=10, piece_s=0.002)
        for turns_before in range(12):
            (leaving,) = asks(pages, 1, rendering)
            await turns(turns_before)
            leaving.cancel()
            (coming,) = asks(pages, 1, rendering)
            assert await coming == "before"

    play(scenario)


def test_a_page_with_counts_is_begun_when_all_are_counted_and_only_for_who_asked_before() -> None:
    async def scenario(pages: RenderedPages) -> None:
        counting = 0

        async def counted() -> None:
            nonlocal counting
            counting += 1
            await asyncio.sleep(5.0)

        pages.counted = counted
        rendering, other = Rendering(), Rendering()
        began_s = fake_time()
        early = [asyncio.create_task(pages.ask("m", rendering, counts=True)) for _ in range(3)]
        await asyncio.sleep(1.0)
        (late,) = [asyncio.create_task(pages.ask("m", rendering, counts=True))]
        assert await pages.ask("without", other) == "before", "pages without counts do not wait"
        assert fake_time() - began_s < 2.0
        await asyncio.gather(*early, late)
        assert [at_s - began_s for at_s in rendering.begun] == pytest.approx([5.0, 10.0])
        assert counting == 2

    play(scenario)


def test_equal_questions_to_another_process_are_one_and_others_do_not_wait_for_it() -> None:
    async def scenario(pages: RenderedPages) -> None:
        questions: list[str] = []

        async def query(name: str, seconds: float) -> str:
            questions.append(name)
            await asyncio.sleep(seconds)
            if name == "bad":
                raise ModelNotReady("silent")
            return name

        slow = [asyncio.create_task(pages.fetch("slow", lambda: query("slow", 9.0))) for _ in range(50)]
        bad = [asyncio.create_task(pages.fetch("bad", lambda: query("bad", 1.0))) for _ in range(5)]
        began_s = fake_time()
        assert await pages.fetch("quick", lambda: query("quick", 1.0)) == "quick"
        assert fake_time() - began_s == pytest.approx(1.0)
        found = await asyncio.gather(*bad, return_exceptions=True)
        assert [str(each) for each in found] == ["silent"] * 5
        late = asyncio.create_task(pages.fetch("slow", lambda: query("slow", 9.0)))
        assert await asyncio.gather(*slow) == ["slow"] * 50
        assert await late == "slow"
        assert sorted(questions) == ["bad", "quick", "slow", "slow"]

    play(scenario)


def test_any_number_of_keys_leaves_nothing() -> None:
    async def scenario(pages: RenderedPages) -> None:
        rendering = Rendering()
        asked = [each for number in range(200) for each in asks(pages, 1, rendering, number)]
        for each in asked[::2]:
            each.cancel()
        await asyncio.wait(asked)

    play(scenario)
