"""The classification extension: an output's largest values as `value:index` strings. Pure.

A request of the Open Inference Protocol as understood, and its results before they are written. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from app.core.errors import InvalidRequest, SignatureNotFound
from app.core.inference import DEFAULT_SIGNATURE, STRING, Array, InferenceRequest, InferenceResponse, ModelSignature
from app.core.validation import check_outputs
from app.protocols.open_inference.datatypes import datatype_of
from app.protocols.open_inference.parameters import Parameters, RequestParameters, flag, number
from app.protocols.open_inference.shared_memory import RegionSlice, region_slice


def classify(name: str, array: Array, count: int, batched: bool) -> Array:
    """BYTES of shape [rows, n], or [n] where the model has no batches; n is `count`, or what there is.

    Largest first, of equals the first one first. Floats are written with six decimals, as Triton writes them.

    Raises:
        InvalidRequest: the output has no order.
    """
    if array.dtype == STRING or array.dtype.kind in "bc":
        raise InvalidRequest(f"Output {name!r} cannot be classified: only numbers can, not {array.dtype.name}")
    shape = array.shape if batched and array.ndim else (1, array.size)
    rows = array.reshape(shape[0], prod(shape[1:]))
    exact = rows if rows.dtype.kind in "iu" else rows.astype(np.float64)
    best = _descending(exact)[:, :count]
    write = "{}:{}" if exact.dtype.kind in "iu" else "{:.6f}:{}"
    texts = np.empty(best.shape, STRING)
    for row, indices in enumerate(best):
        texts[row] = [write.format(exact[row, index], index).encode() for index in indices]
    return texts if batched else texts[0]


def _descending(rows: Array) -> Array:
    """Indices by falling value, stable."""
    last = rows.shape[1] - 1
    order: Array = last - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return order


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """How one output is to be answered: `classes` 0 means the tensor itself, `region` None in the reply."""

    name: str
    classes: int = 0
    binary: bool = False
    region: RegionSlice | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """What to compute, and how to answer. `wanted` are the outputs in the caller's order."""

    request: InferenceRequest
    wanted: Sequence[WantedOutput]
    id: str = ""
    batched: bool = True
    final_response: bool = False

    def results(self, response: InferenceResponse) -> list[tuple[WantedOutput, Array]]:
        """The tensors to write. Raises InvalidRequest where one cannot be classified."""
        return [(output, self._result(output, response.outputs[output.name])) for output in self.wanted]

    def _result(self, output: WantedOutput, array: Array) -> Array:
        return classify(output.name, array, output.classes, self.batched) if output.classes else array


def choose_signature(signatures: Mapping[str, ModelSignature], name: str = "") -> ModelSignature:
    """The one named, else the default, else the only one. Raises SignatureNotFound."""
    if not name and len(signatures) == 1:
        return next(iter(signatures.values()))
    signature = signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        known = ", ".join(map(repr, sorted(signatures))) or "none"
        raise SignatureNotFound(
            f"The model has no signature {name[:256] or DEFAULT_SIGNATURE!r}; "
            f"parameter 'signature_name' chooses one of: {known}"
        )
    return signature


def wanted_output(name: str, parameters: Parameters, binary: bool = False) -> WantedOutput:
    """`binary` is what holds where the output itself says nothing. Raises InvalidRequest."""
    if not parameters:
        return WantedOutput(name, 0, binary)
    region = region_slice(parameters)
    classes = number(parameters, "classification")
    if region and classes:
        raise InvalidRequest(f"Output {name!r}: a classification cannot be written to shared memory")
    return WantedOutput(
        name, classes, flag(parameters, "binary_data") if "binary_data" in parameters else binary, region
    )


def make_call(
    inputs: dict[str, Array],
    outputs: Sequence[WantedOutput],
    signature: ModelSignature,
    parameters: RequestParameters,
    *,
    deadline_s: float,
    id: str = "",  # noqa: A002 - the protocol's word
) -> Call:
    """Nothing wanted is everything wanted.

    Raises:
        InvalidRequest: an output is unknown or wanted twice.
        Unsupported: the protocol has no datatype for an output.
    """
    names = [output.name for output in outputs]
    check_outputs(signature, tuple(names))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"Output {twice!r} is requested more than once")
    # In the signature's order, and none for all: whoever wants the same shares a batch.
    computed = tuple(name for name in signature.outputs if name in names)
    if len(computed) == len(signature.outputs):
        computed = ()
    wanted = outputs or [WantedOutput(name, 0, parameters.binary_outputs) for name in signature.outputs]
    for output in wanted:
        datatype_of(signature.outputs[output.name].dtype)
    request = InferenceRequest(inputs, signature.name, computed, deadline_s, parameters.priority)
    return Call(request, wanted, id, signature.batchable, parameters.final_response)
