"""Checks of a request against a signature. Each error text names the input, what came and what is expected.

Used by app/placement.py before a request is queued, and by frontends and protocols before a request is sent on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from math import prod

from app.core.errors import InvalidRequest, RequestTooLarge, SignatureNotFound
from app.core.inference import Array, ModelSignature, TensorSpec, dtype_name, format_shape, has_rows

#: The most rows without elements: they cost their sender nothing, but take calls of the model. As many as wait by
#: default. Chosen.
MAX_EMPTY_ROWS = 8192

#: The most rows of a SparseTensor without values, and further rows for each of its values. Chosen.
_FREE_ROWS, _EMPTY_ROWS = 64 * 1024, 32


def find_signature(signatures: Mapping[str, ModelSignature], name: str) -> ModelSignature:
    """The signature of this name. Raises SignatureNotFound."""
    signature = signatures.get(name)
    if signature is None:
        raise SignatureNotFound(f'Serving signature name: "{name}" not found in signature def')
    return signature


def check_inputs(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    """Check names, dtypes and shapes; masks may be left out.

    Raises:
        InvalidRequest: an input does not fit; the text names the first.
    """
    check_names_and_dtypes(signature, inputs)
    check_shapes(signature, inputs)


def check_names_and_dtypes(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    """Raises InvalidRequest unless names and dtypes are the signature's; masks may be left out."""
    check_names(signature, inputs.keys())
    for name, array in inputs.items():
        spec = signature.inputs[name]
        if array.dtype != spec.dtype:
            raise InvalidRequest(f"Input {name!r} has dtype {dtype_name(array.dtype)}; expected {spec}")


def check_names(signature: ModelSignature, names: Set[str]) -> None:
    """Raises InvalidRequest unless they are the signature's inputs; masks may be left out."""
    if names != signature.expected(names).keys():
        _reject_names(signature, names)


def check_shapes(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    """Raises InvalidRequest unless each shape fits the signature; the names were checked before."""
    for name, array in inputs.items():
        spec = signature.inputs[name]
        if not spec.accepts_shape(array.shape):
            shape, expected = format_shape(array.shape), format_shape(spec.shape)
            is_row = spec.shape is not None and array.ndim == len(spec.shape) + 1
            hint = _columns_hint(signature, spec) if is_row else ""
            raise InvalidRequest(f"Input {name!r} has shape {shape}; expected {expected}{hint}")


def _columns_hint(signature: ModelSignature, spec: TensorSpec) -> str:
    """The advice about an input that has one dimension too many, as rows of JSON have it."""
    if signature.mixed_rows:
        return " (a request with trees has 'inputs', not 'instances')"
    if has_rows(spec.shape):
        return ""
    return " (it is no row: in JSON a request with it has 'inputs', not 'instances')"


def check_ranks(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    """Raises InvalidRequest unless each shape has the rank of the signature, if the signature is `one_rank`."""
    for name, array in inputs.items() if signature.one_rank else ():
        spec = signature.inputs[name]
        if spec.shape is not None and array.ndim != len(spec.shape):
            shape, expected = format_shape(array.shape), format_shape(spec.shape)
            raise InvalidRequest(f"Input {name!r} has shape {shape}; expected {expected}, or other sizes of this rank")


def check_row_size(signature: ModelSignature, inputs: Mapping[str, Array], most: int) -> None:
    """Raises RequestTooLarge if a row of an input whose shape the signature leaves open has more than `most` elements.

    A request that has no rows is one row, and a size of 0 counts as 1: outputs may have the other sizes alone.
    """
    for name, array in inputs.items():
        spec, first = signature.inputs[name], int(signature.batchable or signature.mixed_rows)
        elements = prod([size or 1 for size in array.shape[first:]])
        if elements > most and (
            spec.shape is None or None in spec.shape[first:] or not spec.accepts_shape(array.shape)
        ):
            raise RequestTooLarge(
                f"Input {name!r} has shape {format_shape(array.shape)}, {elements} elements in a row; "
                f"max_row_elements is {most}"
            )


def check_empty_rows(inputs: Mapping[str, Array]) -> None:
    """Raises InvalidRequest if inputs of a batchable signature have many rows that cost their sender nothing.

    Such rows have no elements, or are all one row in memory: a TensorProto may give one value for all elements.
    """
    if any(array.size and (array.strides[0] or len(array) == 1) for array in inputs.values()):
        return
    for name, array in inputs.items():
        if len(array) > MAX_EMPTY_ROWS:
            what = "rows of one repeated value" if array.size else "rows without elements"
            raise InvalidRequest(
                f"Input {name!r} has shape {format_shape(array.shape)}, {what}; "
                f"expected {MAX_EMPTY_ROWS} of them at most"
            )


def shapes_fit(signature: ModelSignature, inputs: Mapping[str, Array]) -> bool:
    """Whether all shapes fit the signature and all inputs that are rows have the same number of them."""
    try:
        check_shapes(signature, inputs)
    except InvalidRequest:
        return False
    return not signature.shares_calls or rows_are_equal(signature, without(inputs, signature.shared))


def without(inputs: Mapping[str, Array], names: Set[str]) -> Mapping[str, Array]:
    """The other inputs; the same mapping if there are no names."""
    return {name: array for name, array in inputs.items() if name not in names} if names else inputs


def rows_are_equal(signature: ModelSignature, inputs: Mapping[str, Array]) -> bool:
    """Whether `count_rows` accepts the inputs."""
    try:
        count_rows(signature, inputs)
    except InvalidRequest:
        return False
    return True


def count_rows(signature: ModelSignature, inputs: Mapping[str, Array], hint: str = "") -> int:
    """The number of rows of checked inputs, all of which are rows.

    Args:
        hint: advice for the caller, as the end of the text.

    Raises:
        InvalidRequest: inputs have different numbers of rows.
    """
    rows: dict[str, int] = {name: array.shape[0] for name, array in inputs.items()}
    for values, splits in signature.ragged.items():
        rows[values] = _count_ragged_rows(inputs, values, splits)
        for name in splits:
            del rows[name]
    for parts in signature.sparse:
        shape = inputs[parts.shape]
        rows[parts.indices] = int(shape[0]) if shape.size else -1
        del rows[parts.values], rows[parts.shape]
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name!r} has {count}" for name, count in rows.items())
        raise InvalidRequest(f"Inputs of signature {signature.name!r} must have equally many rows; {counts}{hint}")
    return next(iter(rows.values()))


def _count_ragged_rows(inputs: Mapping[str, Array], values: str, splits: Sequence[str]) -> int:
    """The number of rows of a ragged input. Its row splits must be complete, since rows of other requests follow."""
    for name, inner in pairwise([*splits, values]):
        ends = inputs[name]
        inner_rows = len(inputs[inner]) - (inner != values)
        if not len(ends) or ends[0] != 0 or ends[-1] != inner_rows or (ends[1:] < ends[:-1]).any():
            raise InvalidRequest(
                f"Input {name!r} must be row splits of {inner!r}: ascending from 0 to {inner_rows}, "
                "one more than there are rows"
            )
    return len(inputs[splits[0]]) - 1


def check_sparse(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    """Raises InvalidRequest if the parts of a SparseTensor do not fit each other, or it has too many empty rows.

    A shape is believed only as far as its values are worth: operations make lists of as many numbers as there are rows
    (SparseFillEmptyRows), and TensorFlow ends the process if there is no memory for one.
    """
    for names in signature.sparse:
        indices, values, shape = (inputs[name] for name in names)
        if indices.ndim != 2 or values.shape != indices.shape[:1] or shape.shape != indices.shape[1:]:
            shapes = ", ".join(format_shape(inputs[name].shape) for name in names)
            raise InvalidRequest(
                f"Inputs {', '.join(map(repr, names))} are a SparseTensor; expected shapes [n,rank], [n], [rank], "
                f"got {shapes}"
            )
        if (indices < 0).any() or (indices >= shape).any() or (shape < 0).any():
            raise InvalidRequest(f"Input {names.indices!r} has indices outside of the shape in {names.shape!r}")
        if len(shape) and shape[0] > (most := _FREE_ROWS + _EMPTY_ROWS * len(values)):
            raise InvalidRequest(
                f"Input {names.shape!r} has {shape[0]} rows; expected {most} at most with {len(values)} values"
            )


def check_outputs(signature: ModelSignature, outputs: tuple[str, ...]) -> None:
    """Raises InvalidRequest if a wanted output is not one of the signature's."""
    for name in outputs:
        if name not in signature.outputs:
            raise InvalidRequest(
                f"Signature {signature.name!r} has no output {name!r}; it has {_names(signature.outputs)}"
            )


def _reject_names(signature: ModelSignature, sent: Set[str]) -> None:
    missing = signature.expected(sent).keys() - sent
    unknown = sent - signature.inputs.keys()
    parts = [f"{word} {_names(names)}" for word, names in (("missing", missing), ("unknown", unknown)) if names]
    raise InvalidRequest(
        f"Inputs do not match signature {signature.name!r}: {'; '.join(parts)}; expected {_names(signature.inputs)}"
    )


def _names(names: Mapping[str, TensorSpec] | set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))[:1024] or "none"
