"""Inputs with a default value (SignatureDef.defaults) may be left out by clients of every protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from app.core.inference import Array
from tests.every_protocol.drivers.driver import Driver, Question, Rejected
from tests.every_protocol.live import live
from tests.every_protocol.suite import DRIVERS, in_every_arrangement
from tests.support import savedmodels

#: These carry images, or one input of a fixed name.
UNFIT = {"a bare tensor", ".npy", "PNG", "JPEG"}

X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
SENT: dict[str, Array] = {
    "x": X,
    "scale": np.array([[1], [10], [100]], np.float32),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    savedmodels.make_with_defaults(folder / "m" / "1")
    return folder


@in_every_arrangement
def test_inputs_left_out_have_their_default_values_in_each_row(folder: Path, frontends: int) -> None:
    async def check(driver: Driver, *names: str) -> None:
        answer = await driver.ask(Question(inputs={name: SENT[name] for name in names}))
        scale = SENT["scale"] if "scale" in names else 3.0
        np.testing.assert_array_equal(answer["y"], X * scale, err_msg=f"{driver.name} {names}")
        assert answer["letters"].tolist() == [4] * 3, driver.name

    async def main() -> int:
        fit = [drive for drive in DRIVERS if not any(drive.name.endswith(each) for each in UNFIT)]
        async with live(folder, frontends=frontends, runtime="tensorflow") as server:
            for drive in fit:
                driver = drive(server)
                await asyncio.gather(*[check(driver, "x", *more) for more in ((), ("scale",), ())])
                with pytest.raises(Rejected, match="x"):
                    await driver.ask(Question(inputs={"scale": SENT["scale"]}))
        return len(fit)

    assert asyncio.run(main()) > 8
