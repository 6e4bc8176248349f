"""The probe of padding, in the background: whether requests of different shapes of a signature may share a call.

A signature does not say this, so the model is called:
1. Two calls with different sizes show which free dimensions always have the same size, and which output dimension
   follows which input dimension. If an output's size equals none of the inputs', output_shapes.py looks for the rule.
   A signature with an output that follows no rule is not padded.
2. Padding must be neutral: rows are computed alone and padded beside each other, and cut answers must be the same, also
   in a call of the most rows, and at large sizes (padding_limits.py).
3. A call of few cells (elements of inputs) and one of many are timed: they show how much padding costs as much as a
   call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import cycle, islice
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from app.batching.batch import run_together
from app.batching.function import BatchFunction
from app.batching.request import PendingRequest
from app.batching.shapes.buckets import ShapeBuckets
from app.batching.shapes.padding import ShapePadding
from app.core.agreement import TOLERANCES, agree
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.inference import STRING, Array, ModelSignature
from app.core.time_budget import OverBudget
from app.core.values.sample_inputs import SEED
from app.core.values.value_hints import are_specific
from app.loading.budgeted_model import BudgetedModel
from app.loading.output_shapes import NotUnderstood, Sizes, followed_shapes
from app.loading.padding_limits import ProvenSizes, neutral_up_to
from app.loading.rows.probe_rows import (
    KINDS,
    Kind,
    NamedShapes,
    hinted_kinds,
    inner_shape,
    probe_row,
    shapes_at,
    shapes_to_try,
)
from app.loading.settings_of_model import element

#: Largest allowed difference from the answer alone. Chosen.
_TOLERANCES = {**TOLERANCES, "float32": 1e-5, "complex64": 1e-5}

#: The same where products of float32 are computed in TF32. Chosen: a deep net may exceed it, and is not padded.
_TF32_TOLERANCES = {**TOLERANCES, "float32": 1e-2, "complex64": 1e-2}

#: Calls of which the median is taken. Chosen.
_TIMED_CALLS = 5

#: Limits of the calls that prove large sizes: elements of a row's inputs, seconds for one size, and how much more an
#: element may take at twice the size (attention takes twice as much). Chosen.
_MOST_CELLS, _RUNG_S, _GROWTH = 1 << 18, 0.5, 2.0


class PaddingOptions(NamedTuple):
    """The settings of padding.

    pad: 'auto' only if padding is neutral, 'always' also if it changes answers, or 'never'.
    values: by input, the element of its dtype that it is padded with; other inputs get 0, '' or False.
    """

    pad: str = "auto"
    buckets: ShapeBuckets = ShapeBuckets()
    values: Mapping[str, Any] = {}


class ProbedPadding(NamedTuple):
    """The padding of one signature with free inner dimensions, or the reason why there is none.

    kind: the kind of probe values that the model accepts, made up or by hints.
    in_budget: false if the probe was cut short for lack of time or memory.
    limit: why longer requests than `padding.proven` are not padded; empty if the model or the buckets take none.
    """

    padding: ShapePadding | None
    reason: str = ""
    kind: Kind = KINDS[0]
    limit: str = ""
    in_budget: bool = True

    def __str__(self) -> str:
        if self.padding is None:
            return f"only equal shapes share a batch: {self.reason}"
        if not self.limit:
            return f"padded: {self.padding}"
        proven = ", ".join(f"{name} = {size}" for name, size in self.padding.proven.items())
        return f"padded: {self.padding}; up to {proven}, as {self.limit}"


def probe_padding(
    model: BudgetedModel,
    sizes: BatchSizes,
    options: PaddingOptions,
    *,
    signatures: Mapping[str, ModelSignature] | None = None,
) -> dict[str, ProbedPadding]:
    """The padding of each signature; ragged signatures, and those not batchable or of fixed inner shapes, are left out.

    Args:
        model: its time budget ends the probe; a padding that is not proven by then is not used.
        signatures: as callers see them, if they may leave masks out.
    """
    if options.pad == "never" or sizes.largest < 2:
        return {}
    found = {}
    for signature in (model.signatures if signatures is None else signatures).values():
        if (
            signature.batchable
            and not signature.why_alone()
            and not (signature.ragged or signature.ragged_outputs)
            and any(None in inner_shape(signature, each) for each in signature.inputs)
        ):
            most = sizes.up_to(signature.most_rows or sizes.largest)
            found[signature.name] = _Probe(model, signature, most, options).find()
    return found


class _Probe:
    """The probe of one signature."""

    def __init__(
        self, model: BudgetedModel, signature: ModelSignature, sizes: BatchSizes, options: PaddingOptions
    ) -> None:
        self._model = model
        self._signature = signature
        self._options = options
        self._random = np.random.default_rng(SEED)
        self._function = BatchFunction(lambda inputs: model.run(signature.name, inputs, ()), sizes)
        self._kind: Kind = KINDS[0]
        hints = model.value_hints(signature.name)
        self._kinds: Sequence[Kind] = (*KINDS, *(hinted_kinds(signature, hints) if are_specific(hints) else ()))
        self._tolerances = _TF32_TOLERANCES if signature.tf32 else _TOLERANCES

    def find(self) -> ProbedPadding:
        limit = ""
        try:
            inputs, small, large = self._accepted()
            outputs = followed_shapes(lambda sizes: self._shapes(inputs, sizes, [self._kind]), small, large)
            values = {name: self._pad_value(name, spec.dtype) for name, spec in self._signature.inputs.items()}
            padding = ShapePadding(inputs, outputs, values, self._options.buckets)
            if self._options.pad != "always":
                self._check_neutral(padding, small, large)
                padding.proven, limit = self._proven(padding, small, large)
            padding.call_cells = self._call_cells(padding, small, large)
        except NotUnderstood as reason:
            return ProbedPadding(None, str(reason))
        except ServingError as error:
            return ProbedPadding(None, f"the model failed at a probe: {error}")
        except OverBudget as reason:
            return ProbedPadding(None, f"whether padding changes answers was not found out: {reason}", in_budget=False)
        return ProbedPadding(padding, kind=self._kind, limit=limit)

    # --- names of dimensions ---

    def _accepted(self) -> tuple[NamedShapes, Sizes, Sizes]:
        """Names of the free dimensions, as many different ones as the model accepts, and two sizes that it accepts."""
        for inputs, small in shapes_to_try(self._signature):
            large = {name: 2 * size + 1 for name, size in small.items()}
            if all(self._shapes(inputs, sizes, self._kinds) is not None for sizes in (small, large)):
                return inputs, small, large
        raise NotUnderstood("the model rejects the values that it was tried with")

    def _shapes(self, inputs: NamedShapes, sizes: Sizes, kinds: Sequence[Kind]) -> Mapping[str, tuple[int, ...]] | None:
        """The outputs' shapes for the first kind of values that the model accepts; None if it accepts none."""
        for kind in kinds:
            try:
                outputs = self._run(self._row(inputs, sizes, kind))[0]
            except ServingError:
                continue
            self._kind = kind
            return {name: output.shape for name, output in outputs.items()}
        return None

    # --- neutrality ---

    def _check_neutral(self, padding: ShapePadding, small: Sizes, large: Sizes) -> None:
        least = dict(sorted((rule.dimension, rule.least) for rule in padding.rules))
        pairs = _pairs(small, large, least)
        tried = {kind: [self._agrees(padding, first, second, kind) for first, second in pairs] for kind in self._kinds}
        found = {answer for answers in tried.values() for answer in answers}
        if False in found:
            raise NotUnderstood("padding changes the model's answers")
        if True not in found:
            raise NotUnderstood("the model rejects, or has no answer to, the values that it was tried with")
        # If all values are equal, a shift does not show: other kinds are better, if the model accepts them.
        self._kind = next((kind for kind in (*self._kinds[1:], KINDS[0]) if None not in tried[kind]), self._kind)
        for first, second in _strides(padding, small, large):
            if not self._agrees(padding, first, second, self._kind):
                raise NotUnderstood("padding changes the model's answers at some sizes")

        try:
            many = self._agrees(padding, small, large, self._kind, self._function.sizes.largest)
        except OverBudget:
            return
        if many is False:
            raise NotUnderstood("padding changes the model's answers in calls of many rows")

    def _proven(self, padding: ShapePadding, small: Sizes, large: Sizes) -> ProvenSizes:
        """The largest sizes for which padding is neutral, as far as time and memory allow."""

        def agrees(first: Sizes, second: Sizes) -> bool | None:
            try:
                return self._agrees(padding, first, second, self._kind)
            except OverBudget:
                return False

        def affordable(sizes: Sizes) -> bool:
            name, memory = self._signature.name, self._model.memory
            cells = padding.cells(tuple(shapes_at(padding.inputs, sizes).values()))
            seconds = 4 * self._model.expected_s(name, _GROWTH * cells)  # two rows alone, and two together
            fits = memory.expected_bytes(name, int(2 * cells)) <= memory.call_bytes
            return cells <= _MOST_CELLS and seconds <= _RUNG_S and fits

        return neutral_up_to(agrees, affordable, small, large, self._options.buckets)

    def _agrees(
        self, padding: ShapePadding, first: Sizes, second: Sizes, kind: Kind, most_rows: int = 2
    ) -> bool | None:
        """Whether two rows, repeated in turn, get the same answers in one call as alone.

        None if there are no answers to compare.
        """
        rows = [self._row(padding.inputs, sizes, kind) for sizes in (first, second)]
        try:
            alone = [self._run(row)[0] for row in rows]
        except ServingError:
            return None
        if not all(_has_finite_numbers(answer) for answer in alone):
            return None
        try:
            together = self._run(*islice(cycle(rows), most_rows), padding=padding)
        except ServingError:
            return False
        return all(agree(one, other, self._tolerances) for one, other in zip(cycle(alone), together, strict=False))

    # --- costs ---

    def _call_cells(self, padding: ShapePadding, small: Sizes, large: Sizes) -> float:
        """The cells that cost as much as a call itself, from a call of few cells and one of many; at most as many."""
        rows = self._function.sizes.largest
        few, few_s = self._timed(padding, small, 1)
        try:
            many, many_s = self._timed(padding, large, rows)
        except OverBudget:
            return 0.0  # where a row takes that long, a call itself costs nothing
        cell_s = max(many_s - few_s, 0.0) / (many - few)
        call_s = max(few_s - few * cell_s, 0.0)
        return min(call_s / cell_s, many) if cell_s else many

    def _timed(self, padding: ShapePadding, sizes: Sizes, rows: int) -> tuple[int, float]:
        """The cells of a call, and the median of its seconds."""
        row = self._row(padding.inputs, sizes, self._kind)
        seconds = []
        for _ in range(_TIMED_CALLS):
            start_s = self._model.work_clock()
            self._run(*[row] * rows)
            seconds.append(self._model.work_clock() - start_s)
        shape = tuple([array.shape[1:] for array in row.values()])
        return self._function.sizes.padded(rows) * padding.cells(shape), median(seconds)

    def _run(self, *rows: Mapping[str, Array], padding: ShapePadding | None = None) -> Sequence[Mapping[str, Array]]:
        self._function.padding = padding
        return run_together(self._function, [PendingRequest(row, 1, Future(), 0.0) for row in rows])

    def _row(self, inputs: NamedShapes, sizes: Sizes, kind: Kind) -> dict[str, Array]:
        return probe_row(self._signature, inputs, sizes, kind, self._random)

    def _pad_value(self, name: str, dtype: np.dtype[Any]) -> Any:
        return element(self._options.values.get(name, "" if dtype == STRING else 0), dtype)


def _pairs(small: Sizes, large: Sizes, least: Sizes) -> list[tuple[Sizes, Sizes]]:
    """Sizes of two rows that share a call; with several dimensions also sizes for which both rows are padded."""
    between = {name: size + 1 for name, size in small.items()}
    tiny = {name: least.get(name, 1) for name in small}
    pairs: list[tuple[Sizes, Sizes]] = [(small, large), (between, large), (tiny, large)]
    for number, name in enumerate(small):
        if number:
            pairs.append(({**small, name: large[name]}, {**large, name: small[name]}))
    return pairs


def _strides(padding: ShapePadding, small: Sizes, large: Sizes) -> Iterator[tuple[Sizes, Sizes]]:
    """Sizes of two rows: every remainder by the period, of the shorter row and of the longer one.

    Where a stride begins may depend on the remainder: TensorFlow's SAME convolutions pad on both sides.
    """
    for name, period in dict(sorted((rule.dimension, rule.period) for rule in padding.rules)).items():
        short = max(small[name], period)
        long = max(large[name], 3 * period)
        for more in range(period) if period > 1 else ():
            yield {**small, name: short + more}, {**large, name: long}
            yield {**small, name: short}, {**large, name: long - more}


def _has_finite_numbers(answer: Mapping[str, Array]) -> bool:
    """Whether each output has finite numbers; an output without agrees with everything."""
    return all(
        not np.issubdtype(output.dtype, np.inexact) or not output.size or bool(np.isfinite(output).any())
        for output in answer.values()
    )
