"""The inputs of a PredictRequest; of a long one with many fields they are read in another process, without gRPC."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Any

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensors
from app.core.errors import InvalidRequest
from app.core.inference import Array, ModelSignature
from app.core.validation import check_names
from app.transports.grpc.messages_in_process import parse_in_process
from app.transports.http.long_bodies.reading_process import Reader

#: The most names of an output_filter that come back from the process. Chosen: far more than a model has.
_MOST_OUTPUTS = 10_000


def wanted_outputs(request: Any) -> tuple[str, ...]:
    return tuple(sorted(set(request.output_filter))) if request.output_filter else ()


def predict_inputs(
    request: Any, signature: ModelSignature, max_message_bytes: int, most: float = inf
) -> dict[str, Array]:
    """The inputs of a PredictRequest, by name.

    Raises:
        InvalidRequest: a name is missing or unknown, or a value is no tensor.
        TakesLong: an input has more than `most` strings in `tensor_content`.
    """
    protos = request.inputs
    names = protos.keys()
    expected = signature.expected(names)
    if len(names) != len(expected):
        raise _wrong_names(names, expected.keys())
    check_names(signature, names)
    return decode_tensors(protos, max_message_bytes, most)


def _wrong_names(sent: Collection[str], wanted: Collection[str]) -> InvalidRequest:
    """TensorFlow Serving's text, which its users search for."""
    return InvalidRequest(
        f"input size does not match signature: {len(sent)}!={len(wanted)}"
        f" len({_set(sent)}) != len({_set(wanted)})."
        f" Sent extra: {_set(set(sent) - set(wanted))}. Missing but required: {_set(set(wanted) - set(sent))}."
    )


def _set(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names))[:1024] + "}"


# --- in another process ---


class RequestInProcess:
    """A PredictRequest that `process` parses. Its methods raise ServingError, TimeoutError and ProcessEnded."""

    def __init__(self, process: Reader, content: bytes) -> None:
        self._process = process
        process.keep(parse_in_process, "tensorflow.serving.PredictRequest", "Predict", memoryview(content))

    def head(self) -> tuple[Any, tuple[str, ...]]:
        """The message's ModelSpec, and the wanted outputs."""
        spec, outputs = self._process.ask(_head)
        return message_class("tensorflow.serving.ModelSpec").FromString(spec), outputs

    def inputs(self, signature: ModelSignature, max_message_bytes: int) -> dict[str, Array]:
        return self._process.ask(predict_inputs, signature, max_message_bytes)


def _head(request: Any) -> tuple[bytes, tuple[str, ...]]:
    outputs = wanted_outputs(request)
    if len(outputs) > _MOST_OUTPUTS:
        raise InvalidRequest(f"output_filter has {len(outputs)} names; expected {_MOST_OUTPUTS} at most")
    return request.model_spec.SerializeToString(), outputs
