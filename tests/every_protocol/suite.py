"""The list of protocols, the server that they share, and the functions that tests of a behaviour use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from app import runtime
from app.core.inference import Array
from tests.every_protocol.drivers import grpc_drivers, open_inference_rest, tensorflow_rest
from tests.every_protocol.drivers.driver import Driver, Fault, Question, Rejected, rows
from tests.every_protocol.live import RUNTIME, Live, live
from tests.support.processes import ARRANGEMENTS

Drive = type[Driver]
Scenario = Callable[[Driver], Coroutine[Any, Any, None]]
Run = Callable[[Drive, Scenario], None]

DRIVERS: Sequence[Drive] = (*tensorflow_rest.DRIVERS, *open_inference_rest.DRIVERS, *grpc_drivers.DRIVERS)

in_every_arrangement = pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())

one_driver = pytest.mark.parametrize("drive", DRIVERS, ids=lambda drive: drive.name)


def over(*kinds: Fault) -> Any:
    """Every driver that has these kinds of errors."""
    having = [drive for drive in DRIVERS if not any(kind in drive.lacks for kind in kinds)]
    return pytest.mark.parametrize("drive", having, ids=lambda drive: drive.name)


@pytest.fixture(scope="module", autouse=True)
def runtime_in_place() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(runtime._REGISTRY, *RUNTIME)
        yield


@pytest.fixture(scope="module", params=ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def running(
    request: pytest.FixtureRequest, runtime_in_place: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[asyncio.Runner, Live]]:
    """One server for all tests that do not change it."""
    with asyncio.Runner() as runner:
        context = live(tmp_path_factory.mktemp("models"), frontends=request.param)
        yield runner, runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


@pytest.fixture
def run(running: tuple[asyncio.Runner, Live]) -> Run:
    runner, served = running

    def run_scenario(drive: Drive, scenario: Scenario) -> None:
        served.model.calls.clear()
        served.model.wanted.clear()
        runner.run(scenario(drive(served)))
        assert served.waiting_rows() == 0

    return run_scenario


async def rejection(answer: Awaitable[object]) -> Rejected:
    try:
        found = await answer
    except Rejected as rejected:
        return rejected
    raise AssertionError(f"It was answered: {found}")


async def ask_rows(driver: Driver, *values: float, **more: Any) -> Array:
    """The one output for rows of these values."""
    (output,) = (await driver.ask(Question(inputs={"features": rows(*values)}, **more))).values()
    return output


def assert_says_when_to_come_back(rejected: Rejected) -> None:
    if rejected.code != grpc_drivers.IN_STREAM:
        assert {"retry-after", "grpc-retry-pushback-ms"} & {name.lower() for name in rejected.headers}
