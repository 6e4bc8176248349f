"""The infer request that REST and gRPC share, and its results before they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from app.core.errors import InvalidRequest, SignatureNotFound
from app.core.inference import DEFAULT_SIGNATURE, STRING, Array, InferenceRequest, InferenceResponse, ModelSignature
from app.core.validation import check_outputs
from app.protocols.open_inference.datatypes import datatype_of
from app.protocols.open_inference.parameters import Parameters, RequestParameters, flag, number
from app.protocols.open_inference.shared_memory import RegionSlice, region_slice


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output that a request wants, and its form.

    Attributes:
        classes: the number of largest values to classify; 0 for the tensor itself.
        binary: over REST, bytes after the JSON.
        region: the shared memory that gets the tensor; None if the reply has it.
    """

    name: str
    classes: int = 0
    binary: bool = False
    region: RegionSlice | None = None


@dataclass(frozen=True, slots=True)
class InferCall:
    """An infer request and the form of its reply.

    Attributes:
        wanted: the outputs in the caller's order.
        labels: the names of classes, by output; the signature's.
    """

    request: InferenceRequest
    wanted: Sequence[WantedOutput]
    id: str = ""
    batched: bool = True
    final_response: bool = False
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def in_json(self) -> bool:
        """Whether REST writes a tensor as JSON: no output goes to shared memory, and some are not binary."""
        return not any(output.region for output in self.wanted) and not all(output.binary for output in self.wanted)

    def results(self, response: InferenceResponse) -> list[tuple[WantedOutput, Array]]:
        """The tensors of the reply. Raises InvalidRequest if one cannot be classified."""
        return [(output, self._result(output, response.outputs[output.name])) for output in self.wanted]

    def _result(self, output: WantedOutput, array: Array) -> Array:
        if not output.classes:
            return array
        return classify(output.name, array, output.classes, self.batched, self.labels.get(output.name, ()))


def choose_signature(signatures: Mapping[str, ModelSignature], name: str = "") -> ModelSignature:
    """The signature of this name; if it is empty, the only one or the default one. Raises SignatureNotFound."""
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


def check_count(outputs: Sequence[object], signature: ModelSignature) -> None:
    """Check the number of wanted outputs. Raises InvalidRequest if the signature has fewer outputs."""
    if len(outputs) > len(signature.outputs):
        raise InvalidRequest(
            f"The request wants {len(outputs)} outputs; signature {signature.name!r} has {len(signature.outputs)}"
        )


def wanted_output(name: str, parameters: Parameters, binary: bool = False) -> WantedOutput:
    """An output with its parameters. Raises InvalidRequest.

    Args:
        binary: used if the parameters have no `binary_data`.
    """
    if not parameters:
        return WantedOutput(name, 0, binary)
    region = region_slice(parameters)
    classes = number(parameters, "classification")
    if region and classes:
        raise InvalidRequest(f"Output {name!r}: a classification cannot be written to shared memory")
    if "binary_data" in parameters:
        binary = flag(parameters, "binary_data")
    return WantedOutput(name, classes, binary, region)


def make_call(
    inputs: dict[str, Array],
    outputs: Sequence[WantedOutput],
    signature: ModelSignature,
    parameters: RequestParameters,
    *,
    deadline_s: float,
    id: str = "",  # noqa: A002 - the protocol's word
) -> InferCall:
    """The call of a request.

    Args:
        inputs: name -> [rows, ...].
        outputs: the wanted outputs; empty for all.
        deadline_s: monotonic seconds.

    Raises:
        InvalidRequest: an output is unknown or wanted twice.
        Unsupported: the protocol has no datatype for an output.
    """
    # 1. Each output is known, and named once.
    names = [output.name for output in outputs]
    check_outputs(signature, tuple(names))
    counts = Counter(names)
    if len(counts) < len(names):
        twice = next(name for name in names if counts[name] > 1)
        raise InvalidRequest(f"Output {twice!r} is requested more than once")

    # 2. The outputs to compute: in the signature's order, and empty for all, so that equal requests share a batch.
    computed = tuple(name for name in signature.outputs if name in counts)
    if len(computed) == len(signature.outputs):
        computed = ()

    # 3. The outputs to write; the protocol has a datatype for each.
    wanted = outputs or [WantedOutput(name, 0, parameters.binary_outputs) for name in signature.outputs]
    for output in wanted:
        datatype_of(signature.outputs[output.name].dtype)
    request = InferenceRequest(inputs, signature.name, computed, deadline_s, parameters.priority)
    return InferCall(request, wanted, id, signature.answers_rows, parameters.final_response, signature.labels)


def classify(name: str, array: Array, count: int, batched: bool, labels: Sequence[str] = ()) -> Array:
    """The classification extension: the largest `count` values as strings `value:index`, largest first.

    Of equal values the lower index comes first. Floats have six decimals, as in Triton. With labels, one for each
    index, the strings are `value:index:label`.

    Returns:
        BYTES of shape [rows, n], or [n] if the model has no batches; n is `count`, or less if there are fewer values.

    Raises:
        InvalidRequest: the output's values have no order.
    """
    if array.dtype == STRING or array.dtype.kind in "bc":
        raise InvalidRequest(f"Output {name!r} has dtype {array.dtype.name}; expected numbers for a classification")
    shape = array.shape if batched and array.ndim else (1, array.size)
    rows = array.reshape(shape[0], prod(shape[1:]))
    exact = rows if rows.dtype.kind in "iu" else rows.astype(np.float64)
    best = _descending(exact)[:, :count]
    write = "{}:{}" if exact.dtype.kind in "iu" else "{:.6f}:{}"
    if labels:
        write += ":{}"
    texts = np.empty(best.shape, STRING)
    for row, indices in enumerate(best):
        texts[row] = [
            write.format(exact[row, index], index, labels[index] if labels else "").encode() for index in indices
        ]
    return texts if batched else texts[0]


def _descending(rows: Array) -> Array:
    """Indices [rows, values] by falling value; equal values keep their order."""
    last = rows.shape[1] - 1
    order: Array = last - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return order
