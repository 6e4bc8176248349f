"""Behaviour of every protocol while the device is busy: queueing, cancellation, deadlines, shared batches."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from app.core.inference import Array
from tests.every_protocol.drivers.driver import Driver, Fault, rows
from tests.every_protocol.drivers.grpc_drivers import OpenInferenceRaw, TensorFlowContent
from tests.every_protocol.drivers.open_inference_rest import Binary
from tests.every_protocol.drivers.tensorflow_rest import JsonRows
from tests.every_protocol.live import MAX_ROWS, live
from tests.every_protocol.models import NO_MEMORY, REJECTED
from tests.every_protocol.suite import (
    Drive,
    Run,
    ask_rows,
    assert_says_when_to_come_back,
    in_every_arrangement,
    one_driver,
    rejection,
    run,
    running,
    runtime_in_place,
)
from tests.support.waiting import HANG_S

__all__ = ["run", "running", "runtime_in_place"]  # fixtures


@one_driver
def test_an_overloaded_server_says_when_to_retry(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        async with driver.live.held():
            accepted = [asyncio.ensure_future(ask_rows(driver, 3.0)) for _ in range(MAX_ROWS)]
            await driver.live.rows_wait(MAX_ROWS)
            rejected = await rejection(ask_rows(driver, 5.0))
        assert rejected.code == drive.codes[Fault.OVERLOADED], rejected
        assert "queue" in rejected.text
        assert_says_when_to_come_back(rejected)
        for answer in await asyncio.gather(*accepted):
            np.testing.assert_array_equal(answer, rows(6.0))
        assert 5.0 not in driver.live.model.computed

    run(drive, scenario)


@one_driver
def test_what_expires_while_it_waits_is_never_computed(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        async with driver.live.held():
            rejected = await rejection(ask_rows(driver, 5.0, timeout_s=0.2))
            await driver.live.rows_wait(0)
        assert rejected.code == drive.codes[Fault.EXPIRED], rejected
        np.testing.assert_array_equal(await ask_rows(driver, 3.0), rows(6.0))
        assert 5.0 not in driver.live.model.computed

    run(drive, scenario)


@one_driver
def test_a_client_that_disconnects_cancels_its_request(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        async with driver.live.held():
            leaving = asyncio.ensure_future(ask_rows(driver, 5.0))
            await driver.live.rows_wait(1)  # not in one turn: a frontend sends what comes in one as one call
            staying = asyncio.ensure_future(ask_rows(driver, 3.0))
            await driver.live.rows_wait(2)
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
            await driver.live.rows_wait(1)
        np.testing.assert_array_equal(await staying, rows(6.0))
        assert 5.0 not in driver.live.model.computed

    run(drive, scenario)


@one_driver
def test_a_client_that_disconnects_during_its_batch_harms_no_other_request(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        async with driver.live.held():
            waiting = []
            for value in (3.0, 5.0, REJECTED, 4.0):  # in this order: rejected, the batch is halved
                waiting.append(asyncio.ensure_future(ask_rows(driver, value)))
                await driver.live.rows_wait(len(waiting))
            first, leaving, rejected, last = waiting
            await driver.live.next_call()
            gone = await driver.live.gone()
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
            async with asyncio.timeout(HANG_S):
                while await driver.live.gone() == gone:  # noqa: ASYNC110 - a count, not an event
                    await asyncio.sleep(0)
        assert (await rejection(rejected)).code == drive.codes[Fault.REJECTED_BY_MODEL]
        np.testing.assert_array_equal(await first, rows(6.0))
        np.testing.assert_array_equal(await last, rows(8.0))

    run(drive, scenario)


@one_driver
@in_every_arrangement
def test_draining_answers_what_was_accepted_and_rejects_the_rest(drive: Drive, frontends: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path, frontends=frontends) as served:
            driver = drive(served)
            async with served.held():
                accepted = asyncio.ensure_future(ask_rows(driver, 3.0))
                await served.rows_wait(1)
                served.server.engine.begin_drain()
                rejected = await rejection(ask_rows(driver, 5.0))
            assert rejected.code == drive.codes[Fault.DRAINING], rejected
            assert "shutting down" in rejected.text
            assert_says_when_to_come_back(rejected)
            np.testing.assert_array_equal(await accepted, rows(6.0))
            assert 5.0 not in served.model.computed

    asyncio.run(main())


@one_driver
@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (REJECTED, Fault.REJECTED_BY_MODEL, "must not be 13"),
        (NO_MEMORY, Fault.NO_MEMORY, "No memory for 1 rows"),
    ],
    ids=["rejected", "no memory"],
)
def test_one_bad_request_fails_alone(drive: Drive, value: float, kind: Fault, said: str, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        async with driver.live.held():
            good = [asyncio.ensure_future(ask_rows(driver, number)) for number in (3.0, 4.0)]
            bad = asyncio.ensure_future(rejection(ask_rows(driver, value)))
            good += [asyncio.ensure_future(ask_rows(driver, number)) for number in (5.0, 6.0)]
            await driver.live.rows_wait(5)
        rejected = await bad
        assert rejected.code == drive.codes[kind], rejected
        assert said in rejected.text
        for number, answer in zip((3.0, 4.0, 5.0, 6.0), await asyncio.gather(*good), strict=True):
            np.testing.assert_array_equal(answer, rows(number * 2))
        assert any(len(call) > 4 for call in driver.live.model.calls), "they shared a batch at first"

    run(drive, scenario)


@in_every_arrangement
def test_requests_of_one_lane_are_answered_first_come_first_served(frontends: int, tmp_path: Path) -> None:
    """Over HTTP and gRPC in turn: small requests do not overtake large ones, nor one protocol another."""

    async def main() -> None:
        async with live(tmp_path, frontends=frontends, max_batch_size=4) as served:
            drivers = [drive(served) for drive in (JsonRows, TensorFlowContent, Binary, OpenInferenceRaw)]
            sizes = [(3, 1, 4, 2, 1, 1)[number % 6] for number in range(12)]  # batches of 4: two, one, three requests
            numbers = [100.0 + number for number in range(12)]
            batches = [(0, 1), (2,), (3, 4, 5), (6, 7), (8,), (9, 10, 11)]
            async with served.held():
                # 1. They arrive one after the other, each by the next protocol.
                answers: list[asyncio.Future[Array]] = []
                for number, size in zip(numbers, sizes, strict=True):
                    driver = drivers[len(answers) % len(drivers)]
                    answers.append(asyncio.ensure_future(ask_rows(driver, *[number] * size)))
                    await served.rows_wait(sum(sizes[: len(answers)]))
                served.model.calls.clear()

                # 2. While a batch is computed, all batches before it have been answered, and none behind it.
                for batch, behind in zip(batches, accumulate(map(len, batches)), strict=True):
                    await served.next_call()
                    assert served.model.calls[-1] == [numbers[each] for each in batch for _ in range(sizes[each])]
                    await asyncio.gather(*answers[: batch[0]])
                    assert not any(answer.done() for answer in answers[batch[0] :])
                    assert served.waiting_rows() == sum(sizes[behind:])
            for number, size, answer in zip(numbers, sizes, answers, strict=True):
                np.testing.assert_array_equal(await answer, rows(*[2 * number] * size))

    asyncio.run(main())
