"""Predict bodies as .npy: the one input, the one output. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from app.inference import STRING, Array, InferenceResponse, ModelSignature, TensorSpec
from app.protocols.body_arrays import cast, check_simple, only_input
from app.protocols.body_form import BodyForm, PredictBody, ReplyForm
from app.protocols.http import NotAcceptable
from app.protocols.npy_format import read_npy, write_npy


def read(body: bytes, max_bytes: int) -> PredictBody:  # noqa: ARG001 - an .npy file does not grow
    array = read_npy(body, "The body")

    def inputs(signature: ModelSignature) -> dict[str, Array]:
        spec = only_input(signature, "An .npy body")
        return {spec.name: cast(array, spec)}

    return PredictBody(inputs)


def check(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises NotAcceptable, Unsupported."""
    if len(outputs) != 1:
        names = ", ".join(map(repr, outputs)) or "none"
        raise NotAcceptable(
            f"A reply of type application/x-npy has one output, but wanted are {names};"
            " choose one by ?output=NAME, or accept application/x-npz"
        )
    check_numpy(outputs)


def check_numpy(outputs: Mapping[str, TensorSpec]) -> None:
    """Raises NotAcceptable, Unsupported where numpy's files have no form for a type."""
    check_simple(outputs)
    for name, spec in outputs.items():
        if spec.dtype == STRING:
            raise NotAcceptable(
                f"Output {name!r} is of strings, for which numpy's files have no safe form;"
                " accept application/json, application/msgpack or application/x-protobuf,"
                " or choose other outputs by ?output=NAME"
            )


def write(response: InferenceResponse, by_row: bool) -> bytes:  # noqa: ARG001 - rows are the first dimension
    (array,) = response.outputs.values()
    return write_npy(array)


FORM = BodyForm(("application/x-npy",), read, ReplyForm(check, write))
