"""A model in numpy for the tests of all protocols: tests can hold its calls, and some values make it fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory
from app.core.inference import Array, ModelSignature, TensorSpec
from tests.support.fakes import FakeRuntime
from tests.support.waiting import HANG_S

#: Rows of these values fail, each in its own way.
REJECTED, FAILED, NO_MEMORY, SECRET = 13.0, 66.0, 88.0, 99.0

#: A call with this value does not end, for tests whose model is in another process.
ENDLESS = 77.0


def _specs(*names: str, shape: tuple[int | None, ...] = (None, 2)) -> dict[str, TensorSpec]:
    return {name: TensorSpec(name, np.dtype(np.float32), shape) for name in names}


class ContractModel:
    """Doubles `features`; `image` does so with an image of 1x2 pixels; `pair` has two inputs and two outputs.

    `computed` are the first numbers of all rows of each call, `wanted` the outputs that each call was for.
    Between `hold` and `release` calls wait, each for a permit; `waits` says that one does.
    """

    def __init__(self) -> None:
        self.signatures: Mapping[str, ModelSignature] = {
            "serving_default": ModelSignature("serving_default", _specs("features"), _specs("doubled")),
            "image": ModelSignature(
                "image", _specs("features", shape=(None, 1, 2)), _specs("doubled", shape=(None, 1, 2))
            ),
            "pair": ModelSignature("pair", _specs("left", "right"), _specs("sum", "product")),
            "single": ModelSignature("single", _specs("features"), _specs("sum", "product")),
        }
        self.calls: list[list[float]] = []
        self.wanted: list[tuple[str, ...]] = []
        self.waits = threading.Event()
        self._permits: threading.Semaphore | None = None

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        first = inputs["left" if signature == "pair" else "features"]
        self.calls.append(first.reshape(len(first), 2)[:, 0].tolist())
        self.wanted.append(outputs)
        if permits := self._permits:
            self.waits.set()
            assert permits.acquire(timeout=HANG_S)
        if (first == ENDLESS).any():
            time.sleep(HANG_S)
        _fail_where_told(first)
        other = inputs.get("right", first)
        with np.errstate(all="ignore"):
            both = {"sum": first + other, "product": first * other}
        if signature in ("serving_default", "image"):
            return {"doubled": both["sum"]}
        return {name: both[name] for name in outputs or both}

    def hold(self) -> None:
        self.waits.clear()
        self._permits = threading.Semaphore(0)

    def permit(self) -> None:
        """Lets the held call continue; the next one is held again."""
        assert self._permits
        self.waits.clear()
        self._permits.release()

    def release(self) -> None:
        permits, self._permits = self._permits, None
        assert permits
        permits.release()

    @property
    def computed(self) -> set[float]:
        return {value for call in self.calls for value in call}

    def close(self) -> None:
        """Holds no resources."""


class ContractRuntime(FakeRuntime):
    """Loads a ContractModel from any folder but `broken`."""

    def load(self, path: Path) -> ContractModel:  # type: ignore[override]  # no model in fakes.py
        if path.parent.name == "broken":
            raise InferenceFailed("broken/1 holds no graph")
        return ContractModel()


def _fail_where_told(values: Array) -> None:
    if (values == REJECTED).any():
        raise InvalidRequest("features must not be 13")
    if (values == FAILED).any():
        raise InferenceFailed("The model failed on 66")
    if (values == NO_MEMORY).any():
        raise OutOfMemory(f"No memory for {len(values)} rows")
    if (values == SECRET).any():
        raise RuntimeError("a secret of the model")
