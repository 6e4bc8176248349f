"""A pipeline over every protocol: a client that leaves ends its steps, and names that no step takes are rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from app.core.inference import Array
from tests.every_protocol.drivers import grpc_drivers, open_inference_rest, tensorflow_rest
from tests.every_protocol.drivers.driver import Driver, Fault, Question, rows
from tests.every_protocol.live import MAX_ROWS, Live, live
from tests.every_protocol.suite import DRIVERS, Drive, Run, ask_rows, rejection, run, runtime_in_place
from tests.support.processes import ARRANGEMENTS
from tests.support.waiting import HANG_S

__all__ = ["run", "runtime_in_place"]  # fixtures

#: Doubles twice.
TWICE = """
steps:
  first: {model: m, inputs: {features: features}}
  second: {model: m, inputs: {features: first.doubled}}
outputs: {doubled: second.doubled}
"""


@pytest.fixture(scope="module", params=ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def running(
    request: pytest.FixtureRequest, runtime_in_place: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[asyncio.Runner, Live]]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "twice" / "1").mkdir(parents=True)
    (folder / "twice" / "1" / "pipeline.yaml").write_text(TWICE)
    with asyncio.Runner() as runner:
        context = live(folder, frontends=request.param, max_body_bytes=64 * 1024)
        served = runner.run(context.__aenter__())
        yield runner, served
        runner.run(context.__aexit__(None, None, None))


#: These have no place for names, or ask for a signature that pipelines lack.
UNNAMED = (".npy", "PNG", "JPEG", "a bare tensor")

having_names = pytest.mark.parametrize(
    "drive", [drive for drive in DRIVERS if not drive.name.endswith(UNNAMED)], ids=lambda drive: drive.name
)


@having_names
def test_names_that_no_step_takes_are_rejected_and_those_expected_named(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        right = {"features": rows(1.0)}
        for wrong in ("other", "first.doubled", "doubled", "Features"):
            for inputs in (right | {wrong: rows(2.0)}, {wrong: rows(2.0)} | right, {wrong: rows(2.0)}):
                rejected = await rejection(driver.ask(Question(inputs=inputs, model="twice")))
                assert rejected.code == drive.codes[Fault.WRONG_NAME], rejected
                assert "features" in rejected.text
                if inputs.keys() > right.keys():
                    assert wrong in rejected.text
        assert not driver.live.model.calls
        np.testing.assert_array_equal(await ask_rows(driver, 3.0, model="twice"), rows(12.0))

    run(drive, scenario)


async def leave(driver: Driver, asked: asyncio.Task[Array]) -> None:
    """Its client goes; returns when the server knows."""
    gone = await driver.live.gone()
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    async with asyncio.timeout(HANG_S):
        while await driver.live.gone() == gone:  # noqa: ASYNC110 - a count, not an event
            await asyncio.sleep(0)


#: One for each way by which a client leaves.
WAYS = (
    tensorflow_rest.JsonRows,
    tensorflow_rest.JsonRowsOverHttp2,
    open_inference_rest.Binary,
    grpc_drivers.TensorFlowContent,
    grpc_drivers.OpenInferenceStream,
)

every_way = pytest.mark.parametrize("drive", WAYS, ids=lambda drive: drive.name)


@every_way
def test_the_next_steps_of_a_client_that_leaves_are_not_computed(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        model = driver.live.model
        model.hold()
        leaving = asyncio.create_task(ask_rows(driver, 5.0, model="twice"))
        assert await asyncio.to_thread(model.waits.wait, HANG_S)
        await leave(driver, leaving)
        model.release()
        np.testing.assert_array_equal(await ask_rows(driver, 3.0, model="twice"), rows(12.0))
        assert model.computed >= {5.0, 3.0, 6.0}
        assert 10.0 not in model.computed

    run(drive, scenario)


@every_way
def test_what_waits_of_a_client_that_leaves_is_withdrawn_and_its_room_given_back(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        async with driver.live.held():
            leaving = asyncio.create_task(ask_rows(driver, 5.0, model="twice"))
            await driver.live.rows_wait(1)
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
            await driver.live.rows_wait(0)
            staying = [asyncio.create_task(ask_rows(driver, 3.0, model="twice")) for _ in range(MAX_ROWS)]
            await driver.live.rows_wait(MAX_ROWS)  # all the room of the queue
        for answer in await asyncio.gather(*staying):
            np.testing.assert_array_equal(answer, rows(12.0))
        assert not {5.0, 10.0} & driver.live.model.computed

    run(drive, scenario)
