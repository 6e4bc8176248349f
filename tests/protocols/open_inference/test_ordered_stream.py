from __future__ import annotations

import asyncio

import pytest

from app.protocols.open_inference.ordered_stream import answer_in_order
from tests.support.garbage import garbage


async def counted(count):
    for number in range(count):
        yield number


def test_answers_keep_the_order_of_the_requests():
    async def main():
        gates = [asyncio.Event() for _ in range(3)]

        async def answer(number):
            if number < 2:
                await gates[number + 1].wait()
            gates[number].set()
            return number

        return [each async for each in answer_in_order(counted(3), answer)]

    assert asyncio.run(main()) == [0, 1, 2]


def test_no_more_than_the_window_is_read_ahead():
    async def main():
        started, go = [], asyncio.Event()

        async def answer(number):
            started.append(number)
            await go.wait()
            return number

        answers = answer_in_order(counted(100), answer, 4)
        first = asyncio.ensure_future(anext(answers))
        for _ in range(20):
            await asyncio.sleep(0)
        ahead = len(started)
        go.set()
        return ahead, await first, [each async for each in answers]

    ahead, first, rest = asyncio.run(main())
    assert 4 <= ahead <= 6
    assert [first, *rest] == list(range(100))


def test_an_error_of_the_requests_ends_the_answers_after_those_before_it():
    async def broken():
        yield 1
        raise ValueError("no message")

    async def answer(number):
        return number

    async def main():
        answers = answer_in_order(broken(), answer)
        assert await anext(answers) == 1
        with pytest.raises(ValueError, match="no message"):
            await anext(answers)

    asyncio.run(main())


def test_what_is_left_when_the_caller_goes_is_cancelled():
    async def main():
        cancelled, started = [], asyncio.Event()

        async def answer(number):
            try:
                started.set()
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        async def consume():
            async for _ in answer_in_order(counted(3), answer):
                pass

        consuming = asyncio.ensure_future(consume())
        await started.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        consuming.cancel()
        await asyncio.wait({consuming})
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
        return sorted(cancelled)

    assert asyncio.run(main()) == [0, 1, 2]


def test_an_error_of_the_requests_leaves_nothing_for_the_collector():
    async def broken():
        yield 1
        raise ValueError("broken")

    async def answer(number):
        return number

    async def read():
        with pytest.raises(ValueError, match="broken"):
            _ = [each async for each in answer_in_order(broken(), answer)]

    async def main():
        await read()
        with garbage() as left:
            await read()
            await asyncio.sleep(0)
        assert not left

    asyncio.run(main())


def test_once_closed_it_reads_no_more_requests():
    async def main():
        waiting = asyncio.Event()

        async def requests():
            yield 0
            waiting.set()
            await asyncio.Event().wait()

        async def answer(number):
            return number

        source = requests()
        answers = answer_in_order(source, answer)
        assert await anext(answers) == 0
        await waiting.wait()
        await answers.aclose()
        await source.aclose()  # raises RuntimeError as long as somebody reads

    asyncio.run(main())
