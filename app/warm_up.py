"""Running a model once at every size before its first caller, so that no caller pays for first calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from app.errors import InvalidRequest
from app.inference import STRING, Array, Dimension, ModelSignature, TensorSpec
from app.runtime import LoadedModel

log = logging.getLogger(__name__)

#: Called before each call with its number, the calls there will be, and what is run.
ProgressReport = Callable[[int, int, str], None]


def example_inputs(signature: ModelSignature, rows: int) -> dict[str, Array]:
    """Inputs that fit the signature: zeros, False and empty strings.

    A free first dimension gets `rows`, every other free dimension 1; a tensor of
    unknown rank is a list of `rows` values.
    """
    return {name: _example(spec, rows) for name, spec in signature.inputs.items()}


def warm_up(model: LoadedModel, sizes: Sequence[int], report: ProgressReport) -> None:
    """Runs every signature at every size, the ones that cannot be batched once.

    A signature that refuses the example values (an image decoder, given no image) stays cold, with a warning.

    Raises:
        InferenceFailed: the model or the device failed; OutOfMemory, if a size does not fit the device.
    """
    calls = [(signature, sizes if signature.batchable else (1,)) for signature in model.signatures.values()]
    total = sum(len(rows) for _, rows in calls)
    done = 0
    for signature, all_rows in calls:
        for count, rows in enumerate(all_rows, start=1):
            what = f"signature {signature.name!r} with {rows} {'row' if rows == 1 else 'rows'}"
            report(done + count, total, what)
            try:
                model.run(signature.name, example_inputs(signature, rows), ())
            except InvalidRequest as refusal:
                log.warning("Signature %r stays cold, it refuses the example values: %s", signature.name, refusal)
                break
        done += len(all_rows)


def _example(spec: TensorSpec, rows: int) -> Array:
    shape = _example_shape(spec.shape, rows)
    return np.full(shape, b"", STRING) if spec.dtype == STRING else np.zeros(shape, spec.dtype)


def _example_shape(shape: tuple[Dimension, ...] | None, rows: int) -> tuple[int, ...]:
    if shape is None:
        return (rows,)
    free_sizes = [rows, *(1 for _ in shape)]
    return tuple(free if size is None else size for size, free in zip(shape, free_sizes, strict=False))
