"""Compiles models for the buckets that their requests are padded to, in the time that the variant search leaves.

Only if the buckets are set (shape_buckets) and the signature has one free dimension: otherwise there are too many
shapes to compile. Nothing is compiled after a model is ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf

import numpy as np

from app.batching.shapes.padding import ShapePadding
from app.core.inference import Array, InnerShapes, ModelSignature
from app.core.time_budget import TimeBudget
from app.core.values.sample_inputs import SEED
from app.loading.padding_probe import ProbedPadding
from app.loading.rows.probe_rows import Kind, probe_values, shapes_at
from app.runtime import CompilableModel, LoadedModel, ProgressReport, ShapeTrial


def compile_buckets(
    model: LoadedModel,
    signatures: Mapping[str, ModelSignature],
    paddings: Mapping[str, ProbedPadding],
    sizes: Sequence[int],
    report: ProgressReport,
    *,
    budget: TimeBudget,
) -> None:
    """Compile each signature whose padding is neutral, and let its requests be padded to the compiled shapes.

    Args:
        sizes: the batch sizes that signatures are called with, ascending.
        budget: shared with the variant search before; when it is used up, no further shape is compiled.
    """
    if not isinstance(model, CompilableModel):
        return
    for name, probed in paddings.items():
        padding = probed.padding
        if padding is not None and len(padding.dimensions) == 1:
            most = min(padding.proven.values(), default=inf)
            ranges = [(before, top) for before, top in pairwise((0, *padding.buckets.sizes)) if top <= most]
            calls = [(rows, top, before) for rows in _likely_first(sizes) for before, top in ranges]
            trials = _BucketTrials(signatures[name], padding, probed.kind)
            made = (trials.make(*call) for call in _reported(calls, name, report))
            speed_ups = model.compile_shapes(name, made, budget)
            used = [call for call, speed_up in zip(calls, speed_ups, strict=False) if speed_up]
            padding.compiled = frozenset((rows, trials.shape(top)) for rows, top, _ in used)


class _BucketTrials:
    """The maker of inputs with which one signature is tried."""

    def __init__(self, signature: ModelSignature, padding: ShapePadding, kind: Kind) -> None:
        self._signature = signature
        self._padding = padding
        self._kind = kind
        self._random = np.random.default_rng(SEED)

    def make(self, rows: int, top: int, before: int) -> ShapeTrial:
        """Inputs of `rows` rows and size `top`, and inputs of the expected size of the longest of `rows` requests.

        `before` is the upper bound of the bucket before: sizes are spread evenly from there to `top`.
        """
        longest = before + max(1, round((top - before) * rows / (rows + 1)))
        return ShapeTrial(self._inputs(rows, top), self._inputs(rows, longest))

    def shape(self, size: int) -> InnerShapes:
        return tuple(self._shapes(size).values())

    def _shapes(self, size: int) -> dict[str, tuple[int, ...]]:
        return shapes_at(self._padding.inputs, dict.fromkeys(self._padding.dimensions, size))

    def _inputs(self, rows: int, size: int) -> dict[str, Array]:
        shapes = self._shapes(size)
        drawn = [probe_values(self._signature, shapes, self._kind, self._random) for _ in range(rows)]
        return {name: np.concatenate([row[name] for row in drawn]) for name in shapes}


def _likely_first(sizes: Sequence[int]) -> list[int]:
    """The sizes: first the first, mostly one row, as calls of an idle server have; then from the middle outwards."""
    middle = (len(sizes) + 1) // 2
    return [sizes[index] for index in sorted(range(len(sizes)), key=lambda index: (index > 0, abs(index - middle)))]


def _reported(
    calls: Sequence[tuple[int, int, int]], signature: str, report: ProgressReport
) -> Iterator[tuple[int, int, int]]:
    for done, call in enumerate(calls, start=1):
        rows, top, _ = call
        report(done, len(calls), f"trying xla for signature {signature!r} with {rows} rows of up to {top}")
        yield call
