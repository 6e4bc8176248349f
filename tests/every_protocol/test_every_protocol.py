"""Behaviour of every protocol, over real sockets: one test for a behaviour, with all drivers."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from app.codecs.format_registry import BODY_FORMATS
from app.frontends.frontend.remote_repository import RemoteRepository
from tests.every_protocol.drivers import grpc_drivers
from tests.every_protocol.drivers.driver import Driver, Fault, Question, rows
from tests.every_protocol.live import MAX_BYTES, Live
from tests.every_protocol.models import FAILED, NO_MEMORY, REJECTED, SECRET
from tests.every_protocol.own_words import foreign_words
from tests.every_protocol.suite import (
    DRIVERS,
    Drive,
    Run,
    ask_rows,
    one_driver,
    over,
    rejection,
    run,
    running,
    runtime_in_place,
)

__all__ = ["run", "running", "runtime_in_place"]  # fixtures

#: gRPC methods of services with inference that are not inference on tensors; they have suites of their own.
OTHER_METHODS = {"Classify", "Regress", "MultiInference", "GetModelMetadata"}

# --- all of them ---


@one_driver
def test_each_kind_of_error_has_a_code(drive: Drive) -> None:
    assert drive.codes.keys() == set(Fault)
    assert all(drive.lacks.values()), "reasons"


def test_every_path_and_format_of_the_application_has_a_driver(running: tuple[asyncio.Runner, Live]) -> None:
    segments = set(running[1].app._inference)
    assert segments == {drive.serves[0] for drive in DRIVERS if not issubclass(drive, grpc_drivers._Unary)}
    formats = {each.media_types[0] for each in BODY_FORMATS}
    assert formats <= {drive.serves[1] for drive in DRIVERS if drive.serves[0] == "v1"}


def test_every_grpc_method_that_infers_has_a_driver(running: tuple[asyncio.Runner, Live]) -> None:
    services = {service.name: service for service in running[1].services}
    covered = {drive.serves[0].split("/")[0] for drive in DRIVERS}
    assert set(services) - covered == {"tensorflow.serving.ModelService"}  # it infers nothing
    methods = {path.strip("/") for service in services.values() for path in service.methods}
    inferring = {
        path for path in methods if path.split("/")[1] not in OTHER_METHODS and path.endswith(("Predict", "Infer"))
    }
    assert inferring == {drive.serves[0] for drive in DRIVERS if issubclass(drive, grpc_drivers._Unary)}


# --- good ---


@one_driver
def test_every_client_gets_its_own_rows(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        counts = [1 + client % drive.most_rows for client in range(12)]
        asked = [[10.0 * client + row + 1 for row in range(count)] for client, count in enumerate(counts)]
        asked = [[value for value in values if value not in (REJECTED, FAILED, NO_MEMORY, SECRET)] for values in asked]
        async with driver.live.held():
            answers = [asyncio.ensure_future(ask_rows(driver, *values)) for values in asked]
            await driver.live.rows_wait(sum(map(len, asked)))
        for values, answer in zip(asked, await asyncio.gather(*answers), strict=True):
            np.testing.assert_array_equal(answer, rows(*values) * 2)
        assert len(driver.live.model.calls) == 2, "the extra request, and one batch of all others"

    run(drive, scenario)


@one_driver
def test_only_outputs_that_are_wanted_are_computed(drive: Drive, run: Run) -> None:
    if not drive.chooses_outputs:
        return

    async def scenario(driver: Driver) -> None:
        question = Question(inputs={"features": rows(3.0)}, signature="single", outputs=("product",))
        answer = await driver.ask(question)
        assert answer.keys() <= {"product", ""}
        np.testing.assert_array_equal(next(iter(answer.values())), rows(9.0))
        assert driver.live.model.wanted == [("product",)]

    run(drive, scenario)


@over(Fault.MISSING_INPUT)
def test_several_inputs_and_outputs(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        answer = await driver.ask(Question(inputs={"left": rows(3.0, 4.0), "right": rows(5.0, 6.0)}, signature="pair"))
        assert answer.keys() == {"sum", "product"}
        np.testing.assert_array_equal(answer["sum"], rows(8.0, 10.0))
        np.testing.assert_array_equal(answer["product"], rows(15.0, 24.0))

    run(drive, scenario)


@over(Fault.UNKNOWN_VERSION)
def test_a_version_can_be_named(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        np.testing.assert_array_equal(await ask_rows(driver, 3.0, version=1), rows(6.0))

    run(drive, scenario)


# --- rejected before the queue ---

#: What is asked, and what the answer must name.
WRONG: dict[Fault, tuple[Question, str]] = {
    Fault.UNKNOWN_MODEL: (Question(model="nope"), "nope"),
    Fault.UNKNOWN_VERSION: (Question(version=98765), "98765"),
    Fault.UNKNOWN_SIGNATURE: (Question(signature="nope"), "nope"),
    Fault.UNKNOWN_OUTPUT: (Question(outputs=("nope",)), "nope"),
    Fault.WRONG_SHAPE: (Question(inputs={"features": rows(1.0, width=3)}), "features"),
    Fault.WRONG_NAME: (Question(inputs={"nope": rows(1.0)}), "features"),
    Fault.MISSING_INPUT: (Question(inputs={"left": rows(1.0)}, signature="pair"), "right"),
    Fault.NOT_READY: (Question(model="broken"), "broken"),
}


@pytest.mark.parametrize(
    ("drive", "kind"),
    [
        pytest.param(drive, kind, id=f"{drive.name}-{kind.name}")
        for drive in DRIVERS
        for kind in WRONG
        if kind not in drive.lacks
    ],
)
def test_what_does_not_fit_is_rejected_by_name(drive: Drive, kind: Fault, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        question, named = WRONG[kind]
        rejected = await rejection(driver.ask(question))
        assert rejected.code == drive.codes[kind], rejected
        assert named in rejected.text
        assert foreign_words(drive.serves[0], rejected.text) == []
        assert driver.live.model.calls == []

    run(drive, scenario)


@over(Fault.WRONG_DTYPE)
def test_a_wrong_dtype_is_rejected(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        rejected = await rejection(driver.ask(Question(inputs={"features": drive.wrong_dtype})))
        assert rejected.code == drive.codes[Fault.WRONG_DTYPE], rejected
        assert drive.names_dtype in rejected.text
        assert foreign_words(drive.serves[0], rejected.text) == []

    run(drive, scenario)


@pytest.mark.parametrize(
    ("drive", "body"),
    [
        pytest.param(drive, body, id=f"{drive.name}-{what}")
        for drive in DRIVERS
        for what, body in drive.malformed.items()
    ],
)
def test_malformed_is_rejected_and_the_next_one_answered(drive: Drive, body: bytes, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        rejected = await rejection(driver.send(body))
        assert rejected.code == drive.codes[Fault.MALFORMED], rejected
        assert len(rejected.text) > len("Bad request")
        assert "Traceback" not in rejected.text
        assert foreign_words(drive.serves[0], rejected.text) == []
        np.testing.assert_array_equal(await ask_rows(driver, 3.0), rows(6.0))

    run(drive, scenario)


@one_driver
def test_too_large_is_rejected(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        rejected = await rejection(driver.send(bytes(MAX_BYTES + 1)))
        assert rejected.code == drive.codes[Fault.TOO_LARGE], rejected
        assert str(MAX_BYTES) in rejected.text
        np.testing.assert_array_equal(await ask_rows(driver, 3.0), rows(6.0))

    run(drive, scenario)


# --- the model ---


@one_driver
def test_a_model_that_fails_says_so_and_the_next_one_is_answered(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        rejected = await rejection(ask_rows(driver, FAILED))
        assert rejected.code == drive.codes[Fault.MODEL_FAILED], rejected
        assert "failed on 66" in rejected.text
        np.testing.assert_array_equal(await ask_rows(driver, 3.0), rows(6.0))

    run(drive, scenario)


# --- bugs ---


@one_driver
def test_internal_details_of_a_models_failure_are_not_shown(drive: Drive, run: Run) -> None:
    async def scenario(driver: Driver) -> None:
        rejected = await rejection(ask_rows(driver, SECRET))
        assert rejected.code == drive.codes[Fault.MODEL_FAILED], rejected
        assert rejected.text == "The model failed"

    run(drive, scenario)


@one_driver
def test_a_bug_is_not_shown_to_callers(
    drive: Drive, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret of ours")

    async def scenario(driver: Driver) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(driver.live.server.repository, "resolve", broken)
            patch.setattr(RemoteRepository, "resolve", broken)
            rejected = await rejection(driver.ask(Question()))
        assert rejected.code == drive.codes[Fault.BUG], rejected
        assert rejected.text == "Internal error"
        assert "a secret of ours" in caplog.text
        np.testing.assert_array_equal(await ask_rows(driver, 3.0), rows(6.0))

    run(drive, scenario)


def test_a_rejection_in_a_stream_does_not_end_it(running: tuple[asyncio.Runner, Live]) -> None:
    async def main() -> None:
        driver = grpc_drivers.OpenInferenceStream(running[1])
        call = driver.live.channel.stream_stream(f"/{driver.serves[0]}")()
        values = (3.0, REJECTED, 4.0)
        for value in values:
            await call.write(driver.message(Question(inputs={"features": rows(value)})).SerializeToString())
        await call.done_writing()
        answers = [driver.reply(answer) async for answer in call]
        assert [bool(answer.error_message) for answer in answers] == [False, True, False]
        assert driver.outputs(answers[2].infer_response.SerializeToString())["doubled"].tolist() == [[8.0, 8.0]]

    running[0].run(main())
