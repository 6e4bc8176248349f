"""Every awkward model answers each request as TensorFlow does when it is called with that request alone.

All requests of a model are sent at once over all protocols, so they would share calls if they may. Bits are equal where
nothing is padded or compiled; elsewhere values differ by rounding at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.inference import STRING, Array
from tests.awkward.awkward_model import Asked, AwkwardModel, Outputs
from tests.awkward.catalog import MODELS, DirectCalls, write
from tests.awkward.protocols import PROTOCOLS, carries, typed
from tests.every_protocol.drivers.driver import Driver, Fault, Question, Rejected
from tests.every_protocol.live import Live, live

#: Each size that is compiled takes 80 ms, of 77 models. The other batched server has all of them.
FEW_SIZES = {"batch_sizes": (1, 8)}

#: How the server may execute; `exact` are those where nothing is padded or compiled.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "alone": {"batching": False, "execution_variant": "plain"},
    "batched": {"execution_variant": "plain"},
    "batched and compiled": {"execution_variant": "xla", **FEW_SIZES},
    "the fastest, not padded": {"execution_variant": "auto", "pad_shapes": "never", **FEW_SIZES},
}
EXACT = {"alone"}

#: Relative to the value and to the greatest value of the array; rounding where a type is coarser than that.
TOLERANCE = 1e-5
COARSE = {"float16": 2e-3, "bfloat16": 2e-2}

BASE: Mapping[str, Any] = {
    "runtime": "tensorflow",
    "warm_up": True,
    "ready_when": "tuned",
    "load_budget_s": 3.0,
    "max_batch_size": 8,
    "max_queue_size": 8192,
    "max_body_bytes": 1 << 26,
    "grpc_max_message_bytes": 1 << 26,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("awkward")
    write(folder)
    return folder


@pytest.fixture(scope="module")
def direct(folder: Path) -> DirectCalls:
    return DirectCalls(folder)


@pytest.fixture(scope="module", params=SETTINGS)
def running(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, asyncio.Runner, Live]]:
    """The name of the settings, and a server that has all models."""
    cache = str(tmp_path_factory.mktemp("variants"))
    with asyncio.Runner() as runner:
        context = live(folder, **{**BASE, "variant_cache": cache, **SETTINGS[request.param]})
        yield request.param, runner, runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_request_in_company_is_answered_as_alone(
    model: AwkwardModel, running: tuple[str, asyncio.Runner, Live], direct: DirectCalls
) -> None:
    settings, runner, server = running
    expected = [direct(model, asked) for asked in model.asked]

    async def main() -> list[tuple[Asked, str, Outputs, Outputs | Exception]]:
        drivers = [protocol(server) for protocol in PROTOCOLS]
        sent = [
            (driver, asked, outputs)
            for asked, outputs in zip(model.asked, expected, strict=True)
            for driver in drivers
            if carries(type(driver), asked, outputs)
        ]
        bad = [
            rejection(driver, model, asked)
            for asked in model.rejects
            for driver in drivers
            if carries(type(driver), asked, {})
        ]
        answers, _ = await asyncio.gather(
            asyncio.gather(*(answer(driver, model, asked, outputs) for driver, asked, outputs in sent)),
            asyncio.gather(*bad),
        )
        return [(asked, driver.name, outputs, got) for (driver, asked, outputs), got in zip(sent, answers, strict=True)]

    found = runner.run(main())
    problems = [f"{name}: {got}" for _, name, _, got in found if isinstance(got, Exception)]
    if model.law is None:
        problems += [
            f"{name}: {problem}"
            for _, name, outputs, got in found
            if not isinstance(got, Exception)
            for problem in differences(got, outputs, exact=settings in EXACT)
        ]
    assert not problems, f"{len(problems)} of {len(found)}:\n" + "\n".join(problems[:12])
    if model.law:
        model.law([asked for asked, *_ in found], [got for *_, got in found if not isinstance(got, Exception)])


async def answer(driver: Driver, model: AwkwardModel, asked: Asked, expected: Outputs) -> Outputs | Exception:
    try:
        return typed(await driver.ask(_question(model, asked)), expected)
    except Exception as error:
        return error


async def rejection(driver: Driver, model: AwkwardModel, asked: Asked) -> None:
    with pytest.raises(Rejected) as rejected:
        await driver.ask(_question(model, asked))
    assert rejected.value.code == driver.codes[Fault.REJECTED_BY_MODEL], rejected.value


def _question(model: AwkwardModel, asked: Asked) -> Question:
    return Question(inputs=asked.inputs, model=model.name, signature=asked.signature)


def differences(got: Outputs, expected: Outputs, *, exact: bool) -> Sequence[str]:
    if got.keys() != expected.keys():
        return [f"outputs {sorted(got)} instead of {sorted(expected)}"]
    return [
        f"{name} is {_shown(got[name])} instead of {_shown(expected[name])}"
        for name in expected
        if not equal(got[name], expected[name], exact=exact)
    ]


def equal(got: Array, expected: Array, *, exact: bool) -> bool:
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    if expected.dtype == STRING or np.issubdtype(expected.dtype, np.integer) or expected.dtype == bool:
        return bool(np.array_equal(got, expected))
    want, have = expected.astype(np.float64), got.astype(np.float64)
    if exact:
        signs = np.signbit(want) == np.signbit(have)
        return bool(np.array_equal(have, want, equal_nan=True) and (signs | np.isnan(want)).all())
    tolerance = COARSE.get(expected.dtype.name, TOLERANCE)
    greatest = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    return bool(np.allclose(have, want, rtol=tolerance, atol=tolerance * greatest, equal_nan=True))


def _shown(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)} {' '.join(str(array).split())[:200]}"
