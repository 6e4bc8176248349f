"""Questions to a served model, and the comparison of its answers with the reference."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ferry_client import Client
from ferry_client.models import ModelSpec
from ferry_client.open_inference import OpenInference
from ferry_client.protocol import PredictCall

from bench.support.forms import Body
from bench.support.wrk import closed_loop

Array = np.ndarray[Any, Any]
Rows = Mapping[str, Array]

#: The largest difference that is right, as a share of the largest value: sums in another order, in float32.
TOLERANCE = 1e-4

#: Of whole numbers (quantized outputs): sums in another order round to the neighbour.
WHOLE_TOLERANCE = 1


class Differs(RuntimeError):
    """An answer is not the reference's; the text says where and how far."""


def read_reference(file: Path) -> tuple[Rows, Rows]:
    """Inputs and outputs of the reference, by the source's names."""
    with np.load(file) as arrays:
        read = {name: arrays[name] for name in arrays.files}
    as_objects = {name: x.astype(object) if x.dtype.kind == "S" else x for name, x in read.items()}
    inputs = {name.removeprefix("in "): x for name, x in as_objects.items() if name.startswith("in ")}
    outputs = {name.removeprefix("out "): x for name, x in as_objects.items() if name.startswith("out ")}
    return inputs, outputs


def alike(outputs: Rows) -> bool:
    """Whether rows differ so little that mixed-up replies would pass for right."""
    return all(
        x.dtype.kind not in "OSb" and np.ptp(x.astype(np.float64), axis=0).max(initial=0.0)
        <= 10 * TOLERANCE * np.abs(x.astype(np.float64)).max(initial=0.0)
        for x in outputs.values()
    )  # fmt: skip


def same_names(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, str]:
    """The served name of each name of the source: the same; else the only one; else by order.

    Raises:
        Differs: there are not as many.
    """
    if len(ours) != len(theirs):
        raise Differs(f"the source has {sorted(ours)}, what is served has {sorted(theirs)}")
    plain = {_plain(name): name for name in theirs}
    if {_plain(name) for name in ours} == set(plain):
        return {name: plain[_plain(name)] for name in ours}
    return dict(zip(ours, theirs, strict=True))


def _plain(name: str) -> str:
    return name.partition(":")[0].rpartition("/")[2].removeprefix("serving_default_")


class Question:
    """What callers of one model ask. `count` callers have an input each."""

    def __init__(self, client: Client, model: str, inputs: Rows, outputs: Rows, *, whole: bool) -> None:
        self._client, self._model, self._whole = client, model, whole
        metadata = client.metadata(model)
        names = same_names(inputs, metadata.inputs)
        self._inputs = {names[name]: x for name, x in inputs.items()}
        self._outputs = {served: outputs[name] for name, served in same_names(outputs, metadata.outputs).items()}
        self.count = len(next(iter(inputs.values())))

    def _row(self, rows: Rows, n: int) -> dict[str, Array]:
        return {name: x[n] if self._whole else x[n : n + 1] for name, x in rows.items()}

    def ask(self, n: int) -> float:
        """The largest difference of caller `n`'s answer. Raises Differs, ServingError."""
        answer = self._client.predict(self._model, self._row(self._inputs, n))
        wanted = self._row(self._outputs, n)
        return max(difference(name, answer[name], wanted[name], self._outputs[name]) for name in wanted)

    def rate(self, url: str, callers: int, seconds: float) -> float:
        """Answers a second, each of the callers asking again and again with a row of its own."""
        bodies = [self._body(n) for n in range(self.count)]
        loop = closed_loop(f"{url}/v2/models/{self._model}/infer", bodies, callers, seconds)
        if loop.failed:
            raise Differs(f"{loop.failed} of {loop.requests} requests at once failed")
        return loop.rate

    def _body(self, n: int) -> Body:
        """What the client sends, with tensors in binary."""
        call = PredictCall(ModelSpec(self._model), self._row(self._inputs, n), (), 60.0)
        request = OpenInference().predict_request(call)
        return Body(request.body, dict(request.headers))


def difference(name: str, got: Array, wanted: Array, scale: Array) -> float:
    """As a share of the largest value of all rows. Raises Differs if it is too large."""
    if got.shape != wanted.shape:
        raise Differs(f"output {name}: shape {list(got.shape)}, the source gives {list(wanted.shape)}")
    if wanted.dtype.kind in "OS":
        return _exact(name, np.vectorize(_bytes, otypes=[object])(got), wanted)
    if wanted.dtype.kind == "b":
        return _exact(name, got, wanted)
    if wanted.dtype.kind in "iu":
        far = int(np.abs(got.astype(np.int64) - wanted.astype(np.int64)).max(initial=0))
        if far > WHOLE_TOLERANCE or (far and wanted.dtype.itemsize > 1):
            raise Differs(f"output {name}: differs by {far}")
        return 0.0
    if not np.array_equal(np.isnan(got), np.isnan(wanted)):
        raise Differs(f"output {name}: NaN in other places")
    far = np.nanmax(np.abs(got.astype(np.float64) - wanted), initial=0.0)
    share = float(far / max(np.nanmax(np.abs(scale.astype(np.float64)), initial=0.0), 1e-6))
    if share > TOLERANCE:
        raise Differs(f"output {name}: differs by {share:.1e} of the largest value")
    return share


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _exact(name: str, got: Array, wanted: Array) -> float:
    if not np.array_equal(got, wanted):
        raise Differs(f"output {name}: other values")
    return 0.0


def page(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as reply:
        return json.loads(reply.read())
