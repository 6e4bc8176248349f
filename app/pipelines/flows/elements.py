"""Elements of a step with `each`: the second dimension of some inputs is split, so that an element is a row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.core.errors import InferenceFailed, InvalidRequest
from app.core.inference import Array, format_shape
from app.pipelines.plan import INPUT, StepPlan


def split_elements(step: StepPlan, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
    """The inputs of the model, and the number of elements of a row.

    Args:
        inputs: by the model's input, [rows, elements, ...] where `each` names it, else [rows, ...].

    Raises:
        InvalidRequest: inputs differ in their numbers of elements, and one is an input of the request.
        InferenceFailed: they differ, and all are outputs of models; or such an output has no elements.
    """
    count = _elements_of(step, inputs)
    split = {
        name: array.reshape(len(array) * count, *array.shape[2:])
        if step.inputs[name].spread
        else np.repeat(array, count, axis=0)
        for name, array in inputs.items()
    }
    return split, count


def _elements_of(step: StepPlan, inputs: Mapping[str, Array]) -> int:
    counts: dict[str, int] = {}
    from_caller = False
    for name, gather in step.inputs.items():
        if gather.spread:
            if inputs[name].ndim < 2:  # of a model whose output has an unknown rank
                shape = format_shape(inputs[name].shape)
                raise InferenceFailed(f"Input {name!r} has shape {shape}, but 'each' expects [rows, elements, ...]")
            first = gather.values[0]
            counts[first.name if first.step == INPUT else name] = inputs[name].shape[1]
            from_caller |= first.step == INPUT
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        fault = InvalidRequest if from_caller else InferenceFailed
        raise fault(f"the inputs that 'each' names must have equally many elements in a row; {told}")
    return next(iter(counts.values()))
