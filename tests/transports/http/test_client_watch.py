from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.transports.http.client_watch import ClientWatch
from app.transports.http.replies import ClientGone
from tests.support.fakes import run_in_fake_time

PATIENCE_S = 0.1


class Receive:
    """An ASGI `receive` that counts its calls: these messages, then the client hangs up, or never if below 0 s."""

    def __init__(self, hangs_up_after_s: float, *before: dict[str, Any]) -> None:
        self.calls = 0
        self._hangs_up_after_s = hangs_up_after_s
        self._rest = list(before)

    async def __call__(self) -> dict[str, Any]:
        self.calls += 1
        if self._rest:
            return self._rest.pop(0)
        if self._hangs_up_after_s < 0:
            await asyncio.get_running_loop().create_future()
        await later(self._hangs_up_after_s)
        return {"type": "http.disconnect"}


async def later(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(seconds, future.set_result, None)
    await future


STAYS = -1.0


def test_a_quick_request_costs_no_task() -> None:
    async def main() -> None:
        receive = Receive(0.0)
        with ClientWatch(receive, PATIENCE_S):
            await later(PATIENCE_S / 2)
        await later(1.0)
        assert receive.calls == 0

    run_in_fake_time(main())


def test_a_waiting_request_whose_client_goes_is_cancelled() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(ClientGone), ClientWatch(Receive(0.5), PATIENCE_S):
            await loop.create_future()
        assert loop.time() - started == pytest.approx(0.6)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run_in_fake_time(main())


def test_what_is_left_of_the_body_is_passed_over() -> None:
    async def main() -> None:
        receive = Receive(0.0, {"type": "http.request"})
        with pytest.raises(ClientGone), ClientWatch(receive, PATIENCE_S):
            await asyncio.get_running_loop().create_future()
        assert receive.calls == 2

    run_in_fake_time(main())


def test_a_client_that_stays_gets_its_answer() -> None:
    async def main() -> None:
        receive = Receive(STAYS)
        with ClientWatch(receive, PATIENCE_S):
            await later(5.0)
        assert receive.calls == 1
        await later(0.0)
        assert [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    run_in_fake_time(main())


def test_an_error_of_the_body_goes_its_way() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError), ClientWatch(Receive(STAYS), PATIENCE_S):
            raise ZeroDivisionError

    run_in_fake_time(main())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def main() -> None:
        async def wait() -> None:
            with ClientWatch(Receive(STAYS), PATIENCE_S):
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(wait())
        await later(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_fake_time(main())


def test_both_gone_and_cancelled_is_cancelled() -> None:
    async def main() -> None:
        async def wait() -> None:
            with ClientWatch(hang_up_and_cancel, PATIENCE_S):
                await asyncio.get_running_loop().create_future()

        async def hang_up_and_cancel() -> Any:
            task.cancel()
            return {"type": "http.disconnect"}

        task = asyncio.create_task(wait())
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_fake_time(main())


def test_only_a_task_can_be_watched() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        failed = loop.create_future()

        def outside() -> None:
            try:
                ClientWatch(Receive(STAYS))
            except RuntimeError as error:
                failed.set_result(str(error))

        loop.call_soon(outside)
        assert await failed == "only a task can be cancelled"

    run_in_fake_time(main())
