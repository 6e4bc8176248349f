"""Masks and lengths that clients of every protocol leave out are filled in by a whole server."""

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

#: These carry images, one input of a fixed name, or no 32 bit integers.
UNFIT = {"a bare tensor", ".npy", "PNG", "JPEG", "typed contents"}

TOKENS = np.array([[3, 1, 4, 1, 5]], np.int32)
WHOLE: dict[str, Array] = {"tokens": TOKENS, "mask": np.ones((1, 5), np.int64), "lengths": np.array([5], np.int32)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    savedmodels.make_masked(folder / "m" / "1")
    return folder


@in_every_arrangement
def test_they_are_filled_in(folder: Path, frontends: int) -> None:
    async def ask(driver: Driver, *names: str) -> dict[str, Array]:
        return await driver.ask(Question(inputs={name: WHOLE[name] for name in names}))

    async def main() -> int:
        asked = 0
        masks = {"mask": "tokens", "m/lengths": "tokens"}
        async with live(folder, frontends=frontends, runtime="tensorflow", mask_inputs=masks) as server:
            for drive in DRIVERS:
                if any(drive.name.endswith(each) for each in UNFIT):
                    continue
                driver = drive(server)
                whole = await ask(driver, *WHOLE)
                for sent in (("tokens",), ("lengths", "tokens")):
                    answer = await ask(driver, *sent)
                    assert answer.keys() == whole.keys()
                    for name, output in whole.items():
                        np.testing.assert_allclose(answer[name], output, rtol=1e-6, err_msg=drive.name)
                with pytest.raises(Rejected, match="tokens"):
                    await ask(driver, "mask")
                asked += 1
        return asked

    assert asyncio.run(main()) > 8
