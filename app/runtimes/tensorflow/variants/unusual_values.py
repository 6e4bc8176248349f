"""Rows of unusual values, and batches of them, which a variant must answer as plain does.

Kinds of values are mixed in a batch row by row, so a large batch tries them all in one call, and a batch of one row
tries one kind. XLA compiles each size anew, so all kinds are tried at every size. An input without rows is the same for
all rows of a batch: an unusual value in it takes a separate batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from app.core.inference import Array, ModelSignature
from app.core.values.sample_inputs import SEED, hinted_inputs, random_inputs, zero_inputs
from app.core.values.value_hints import pool_numbers
from app.core.values.value_kinds import Reach, ValueKind, kinds_of
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction

#: The most examples of one input alone; kinds are also tried in all inputs together. Chosen.
_MOST_ALONE = 48


class Example(NamedTuple):
    """An example: values of one kind in some inputs; the others are ordinary."""

    kind: str
    reach: Reach
    makers: Mapping[str, ValueKind]

    def __str__(self) -> str:
        return f"{self.kind} in {', '.join(self.makers)}"


def ordinary_inputs(function: SignatureFunction, rows: int) -> Iterator[dict[str, Array]]:
    """Inputs that the function may accept, the likeliest first; inputs by hints last, since reading these is slow."""
    signature = function.signature
    yield random_inputs(signature, rows)
    yield zero_inputs(signature, rows)
    for number in pool_numbers(function.value_hints):
        yield hinted_inputs(signature, function.value_hints, rows, number)


def examples_of(signature: ModelSignature, inputs: Mapping[str, Array], left_out: Container[str] = ()) -> list[Example]:
    """The examples for a signature, whose ordinary inputs are `inputs`. Inputs in `left_out` stay ordinary."""
    splits = {name for names in signature.ragged.values() for name in names}
    splits |= {name for names in signature.sparse for name in (names.indices, names.shape)}
    by_kind: dict[str, dict[str, ValueKind]] = {}
    for name, array in inputs.items():
        # Row splits and indices stay as they are, and a single value of one element is the same as all values.
        one_value = array.size <= (len(array) if signature.shares_calls and name not in signature.shared else 1)
        if name not in left_out and name not in splits and array.size:
            for kind in kinds_of(array.dtype):
                if not (one_value and kind.name.startswith("single")):
                    by_kind.setdefault(kind.name, {})[name] = kind
    together = [_example(kind, makers) for kind, makers in by_kind.items()]
    alone = [
        _example(kind, {name: maker})
        for kind, makers in by_kind.items()
        if len(makers) > 1
        for name, maker in makers.items()
    ]
    return together + alone[:: max(1, -(-len(alone) // _MOST_ALONE))]


def in_batches(signature: ModelSignature, examples: Sequence[Example], rows: int) -> list[list[Example]]:
    """The examples by call of `rows` rows; an example with values in an input without rows is a separate call."""
    shared = signature.shared
    together = [each for each in examples if shared.isdisjoint(each.makers)]
    alone = [[each] for each in examples if not shared.isdisjoint(each.makers)]
    return [together[start : start + rows] for start in range(0, len(together), rows)] + alone


def place(examples: Sequence[Example], inputs: Mapping[str, Array], signature: ModelSignature) -> dict[str, Array]:
    """A batch whose first rows are these examples, and the others rows of `inputs`; one example if it has no rows."""
    rowless = signature.shared if signature.shares_calls else inputs.keys()
    random = np.random.default_rng(SEED)
    batch = {name: array.copy() for name, array in inputs.items()}
    for row, example in enumerate(examples):
        for name, kind in example.makers.items():
            place = ... if name in rowless else slice(row, row + 1)
            batch[name][place] = kind.make(batch[name][place], random)
    return batch


def _example(kind: str, makers: Mapping[str, ValueKind]) -> Example:
    return Example(kind, max(maker.reach for maker in makers.values()), makers)
