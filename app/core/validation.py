"""Does a request fit the signature? Pure; every rejection names the input and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from app.core.errors import InvalidRequest, SignatureNotFound
from app.core.inference import Array, ModelSignature, TensorSpec, dtype_name, format_shape


def find_signature(signatures: Mapping[str, ModelSignature], name: str) -> ModelSignature:
    """Raises SignatureNotFound."""
    signature = signatures.get(name)
    if signature is None:
        raise SignatureNotFound(f'Serving signature name: "{name}" not found in signature def')
    return signature


def check_inputs(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    """Raises InvalidRequest unless names, dtypes and shapes are the signature's; masks may be left out."""
    check_names_and_dtypes(signature, inputs)
    for name, array in inputs.items():
        spec = signature.inputs[name]
        if not spec.accepts_shape(array.shape):
            _reject_shape(spec, array)


def check_names_and_dtypes(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    """Raises InvalidRequest unless they are the signature's; masks may be left out, shapes are left to the model."""
    if inputs.keys() != signature.expected(inputs).keys():
        _refuse_names(signature, inputs)
    for name, array in inputs.items():
        spec = signature.inputs[name]
        if array.dtype != spec.dtype:
            raise InvalidRequest(f"Input {name!r} has dtype {dtype_name(array.dtype)}; expected {spec}")


def shapes_fit(signature: ModelSignature, inputs: Mapping[str, Array]) -> bool:
    """Are the shapes the signature's, with equally many rows in each input of a batchable one?"""
    if not all(spec.accepts_shape(inputs[name].shape) for name, spec in signature.inputs.items()):
        return False
    if not signature.batchable:
        return True
    try:
        count_rows(signature, inputs)
    except InvalidRequest:
        return False
    return True


def count_rows(signature: ModelSignature, inputs: Mapping[str, Array]) -> int:
    """The rows of checked inputs of a batchable signature. Raises InvalidRequest where inputs disagree."""
    rows: dict[str, int] = {name: array.shape[0] for name, array in inputs.items()}
    for values, splits in signature.ragged.items():
        rows[values] = _count_ragged_rows(inputs, values, splits)
        for name in splits:
            del rows[name]
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name!r} has {count}" for name, count in rows.items())
        raise InvalidRequest(f"Inputs of signature {signature.name!r} must have equally many rows; {counts}")
    return next(iter(rows.values()))


def _count_ragged_rows(inputs: Mapping[str, Array], values: str, splits: Sequence[str]) -> int:
    """Row splits must lead from one to the next, and the last to the values: others' rows lie beside these."""
    for name, inner in pairwise([*splits, values]):
        ends = inputs[name]
        inner_rows = len(inputs[inner]) - (inner != values)
        if not len(ends) or ends[0] != 0 or ends[-1] != inner_rows or (ends[1:] < ends[:-1]).any():
            raise InvalidRequest(
                f"Input {name!r} must be row splits of {inner!r}: ascending from 0 to {inner_rows}, "
                "one more than there are rows"
            )
    return len(inputs[splits[0]]) - 1


def check_outputs(signature: ModelSignature, outputs: tuple[str, ...]) -> None:
    """Raises InvalidRequest where an output is wanted that the signature has not."""
    for name in outputs:
        if name not in signature.outputs:
            raise InvalidRequest(
                f"Signature {signature.name!r} has no output {name!r}; it has {_names(signature.outputs)}"
            )


def _refuse_names(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    missing = signature.expected(inputs).keys() - inputs.keys()
    unknown = inputs.keys() - signature.inputs.keys()
    parts = [f"{word} {_names(names)}" for word, names in (("missing", missing), ("unknown", unknown)) if names]
    raise InvalidRequest(
        f"Inputs do not match signature {signature.name!r}: {'; '.join(parts)}; expected {_names(signature.inputs)}"
    )


def _reject_shape(spec: TensorSpec, array: Array) -> None:
    raise InvalidRequest(
        f"Input {spec.name!r} has shape {format_shape(array.shape)}; expected {format_shape(spec.shape)}"
    )


def _names(names: Mapping[str, TensorSpec] | set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"
