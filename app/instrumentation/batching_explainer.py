"""The explanation of a model's batches, from counts and from learnt costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from app.batching.policy import BatchingOptions
from app.core.batching_explanation import (
    NO_CALLS_OF_ITS_OWN,
    ROWS_LOST,
    BatchingExplanation,
    BatchingOptionsDocument,
    BatchSizeDocument,
    CallCostDocument,
    CostCurveDocument,
    MixedShapesDocument,
    PaddingDocument,
    PipelineExplanation,
    SignatureExplanation,
    VariantDocument,
    VersionExplanation,
)
from app.core.events import ModelStateChanged, PipelineEnded, Subscriptions
from app.core.inference import ModelSignature
from app.core.whole_requests import why_whole
from app.instrumentation.advice import advise, advise_on_answers, advise_on_rows
from app.instrumentation.counts import BatchCounts, Counts
from app.instrumentation.figures import durations, rounded
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.pipeline_counts import PipelineCounts
from app.instrumentation.pipelines.pipeline_advice import advise_pipeline
from app.instrumentation.pipelines.pipeline_explainer import ModelRequests, StepDemand, explain_pipeline
from app.model import LearntCosts, Model
from app.pipelines.pipeline_model import PipelineModel

#: The most cost curves listed for one signature: callers choose the shapes, so there may be many. Chosen.
_MOST_CURVES = 32

_RAGGED = "ragged: rows of any length share calls without padding"
_SPARSE = "sparse: rows of any number of entries share calls without padding, if all other sizes are equal"
_NO_SHAPES = MixedShapesDocument(free=None, shared=None, explanation=NO_CALLS_OF_ITS_OWN)

_NOTHING = "No request was counted so far; ask again after some traffic."


class _Counted(NamedTuple):
    """A copy of the counts of one version: batches, and answers by status code, by signature; and of a pipeline."""

    since_s: float
    batches: dict[str, BatchCounts]
    answers: dict[str, Counter[str]]
    pipeline: PipelineCounts


class BatchingExplainer:
    """The explanations of models. Their counts begin with the load of a version, or with `reset`."""

    def __init__(self, counts: Counts, facts: ModelFacts, clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = counts
        self._facts = facts
        self._clock = clock
        self._before: dict[tuple[str, int], _Counted] = {}
        self._asked_before: dict[tuple[str, int], ModelRequests] = {}  # by version of a pipeline, at its first request
        self.subscriptions: Subscriptions = {
            ModelStateChanged: self._model_state_changed,
            PipelineEnded: self._pipeline_ended,
        }

    def reset(self, model: str) -> None:
        """Begin the counts of a model again, as its options changed."""
        for name, version in self._before:
            if name == model:
                self._before[name, version] = self._counted(name, version)

    def explain(
        self,
        name: str,
        options: BatchingOptions,
        models: Sequence[Model | PipelineModel],
        pipelines: Sequence[PipelineModel] = (),
    ) -> BatchingExplanation:
        """The explanation of one model.

        Args:
            models: its versions, newest first.
            pipelines: all served pipelines.
        """
        in_force = BatchingOptionsDocument(**options.as_dict())
        versions = [self._explain_version(model, pipelines) for model in models]
        advice = [
            f"Version {version.version}{sentence}"
            for version, model in zip(versions, models, strict=True)
            for sentence in _advice(version, model.signatures, in_force, self._devices(model))
        ]
        return BatchingExplanation(model=name, options=in_force, advice=advice or [_NOTHING], versions=versions)

    def _devices(self, model: Model | PipelineModel) -> Sequence[str]:
        return self._facts.devices.get(f"{model.name}/{model.version}", ())

    def _explain_version(self, model: Model | PipelineModel, pipelines: Sequence[PipelineModel]) -> VersionExplanation:
        counted = self._counted(model.name, model.version)
        before = self._before.get((model.name, model.version), _Counted(counted.since_s, {}, {}, PipelineCounts()))
        learnt = list(model.learnt_costs())
        return VersionExplanation(
            version=model.version,
            note=model.note,
            counted_for_s=round(counted.since_s - before.since_s, 1),
            batch_sizes=model.sizes.allowed,
            signatures=[
                self._explain_signature(
                    model,
                    signature,
                    counted.batches.get(name, BatchCounts()) - before.batches.get(name, BatchCounts()),
                    counted.answers.get(name, Counter()) - before.answers.get(name, Counter()),
                    [each for each in learnt if each.signature == name],
                )
                for name, signature in model.signatures.items()
            ],
            pipeline=self._explain_pipeline(model, counted.pipeline - before.pipeline, pipelines),
        )

    def _explain_pipeline(
        self, model: Model | PipelineModel, counted: PipelineCounts, pipelines: Sequence[PipelineModel]
    ) -> PipelineExplanation | None:
        if not isinstance(model, PipelineModel):
            return None
        now = ModelRequests.of(self._counts)
        demand = StepDemand(self._asked_before.get((model.name, model.version), now), now, pipelines)
        return explain_pipeline(model, counted, demand)

    def _explain_signature(
        self,
        model: Model | PipelineModel,
        signature: ModelSignature,
        counts: BatchCounts,
        answers: Counter[str],
        learnt: Sequence[LearntCosts],
    ) -> SignatureExplanation:
        variants = self._facts.variants.get(f"{model.name}/{model.version}", {})
        sizes = _batch_sizes(counts)
        calls, rows = sum(each.calls for each in sizes), sum(each.rows for each in sizes)
        curves = [_curve(each) for each in learnt[:_MOST_CURVES]]
        return SignatureExplanation(
            signature=signature.name,
            batched=_is_batched(model, signature),
            alone="" if isinstance(model, PipelineModel) else _why_alone(signature),
            proof=self._facts.row_proofs.get(f"{model.name}/{model.version}", {}).get(signature.name, ""),
            most_rows=1 if isinstance(model, PipelineModel) else model.most_rows(signature.name),
            calls=calls,
            requests=counts.queue_s.count,
            rows=rows,
            rows_per_call=rounded(rows / max(calls, 1)),
            requests_per_call=rounded(counts.queue_s.count / max(calls, 1)),
            batch_sizes=sizes,
            closed_by=counts.closed_by(),
            wait_ms=durations(counts.queue_s),
            compute_ms=durations(counts.compute_s),
            padding=_padding(counts, rows),
            speed_up=_speed_up(sizes, learnt[0]) if len(learnt) == 1 else None,
            answers=answers,
            costs=curves,
            costs_left_out=len(learnt) - len(curves),
            variants=[VariantDocument(**each) for each in variants.get(signature.name, [])],
            shadow_checks=self._facts.shadow_checks.get(f"{model.name}/{model.version}", {}).get(signature.name, {}),
            shapes=_NO_SHAPES if isinstance(model, PipelineModel) else self._shapes_of(model, signature),
        )

    def _shapes_of(self, model: Model, signature: ModelSignature) -> MixedShapesDocument:
        reason, could_share = _why_alone(signature), signature.shares_calls and model.sizes.largest > 1
        if reason or not could_share or not model.follows_rows(signature.name):
            rows_lost = ROWS_LOST if could_share else "each request runs alone"
            alone = f"each request runs alone: {reason}" if reason else rows_lost
            return MixedShapesDocument(free=False, shared=False, explanation=alone)
        if signature.ragged or signature.sparse:
            return MixedShapesDocument(free=True, shared=True, explanation=_SPARSE if signature.sparse else _RAGGED)
        if signature.fixed_inner_shapes:
            return MixedShapesDocument(free=False, shared=False, explanation="all requests have the same inner shapes")
        found = self._facts.shapes_probed(model.name, model.version, signature.name)
        if found is None:
            return _only_equal("outputs are ragged" if signature.ragged_outputs else self._why_not_probed(model))
        if found.padded and not model.pads(signature.name):
            return _only_equal("padding did not go as it did when it was tried")
        return MixedShapesDocument(free=True, shared=found.padded, explanation=found.explanation)

    def _why_not_probed(self, model: Model) -> str:
        if f"{model.name}/{model.version}" in self._facts.improving:
            return "pad_shapes is never, or padding is still to be tried"
        return "pad_shapes is never, or there was no warm-up"

    def _counted(self, model: str, version: int) -> _Counted:
        """The counts of one version since the process began."""
        life = model, version
        batches = {
            signature: counts - BatchCounts() for (*_, signature), counts in self._counts.batches.of(life).items()
        }
        answers: dict[str, Counter[str]] = {}
        for (_, code, _, _, signature), seconds in self._counts.requests.of(life).items():
            answers.setdefault(signature, Counter())[code] += seconds.count
        pipeline = self._counts.pipelines.get(life, PipelineCounts())
        return _Counted(self._clock(), batches, answers, pipeline - PipelineCounts())

    def _pipeline_ended(self, event: PipelineEnded) -> None:
        if event[:2] not in self._asked_before:
            self._asked_before[event[:2]] = ModelRequests.of(self._counts)

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        life = event.model, event.version
        if event.state == "AVAILABLE":
            self._before[life] = self._counted(*life)
        elif event.state == "END":
            self._before.pop(life, None)
            self._asked_before.pop(life, None)


def _advice(
    version: VersionExplanation,
    signatures: Mapping[str, ModelSignature],
    options: BatchingOptionsDocument,
    devices: Sequence[str],
) -> Iterator[str]:
    """The ends of sentences that begin with the version."""
    if version.pipeline is not None:
        yield from (f": {sentence}" for sentence in advise_pipeline(version.pipeline))
    for signature in version.signatures:
        draws = bool(signatures[signature.signature].draws)
        if version.pipeline is not None:
            found = list(advise_on_answers(signature))
        elif signature.calls or signature.answers:
            found = advise(signature, options, version.batch_sizes, draws=draws, devices=devices)
        else:
            found = advise_on_rows(signature, draws=draws)
        yield from (f", signature {signature.signature!r}: {sentence}" for sentence in found)


def _why_alone(signature: ModelSignature) -> str:
    """The reason why each request is a call of its own; empty if requests share calls."""
    return why_whole(signature) or signature.why_alone()


def _is_batched(model: Model | PipelineModel, signature: ModelSignature) -> bool | None:
    """Whether rows of several requests may share a call; None for a pipeline, which has no calls."""
    if isinstance(model, PipelineModel):
        return None
    return signature.shares_calls and not signature.why_alone() and model.follows_rows(signature.name)


def _only_equal(why: str) -> MixedShapesDocument:
    """The document of a signature whose requests share calls only with requests of equal shapes."""
    return MixedShapesDocument(free=True, shared=False, explanation=f"only equal shapes share a batch: {why}")


def _batch_sizes(counts: BatchCounts) -> list[BatchSizeDocument]:
    calls, rows = Counter[int](), Counter[int]()
    for (real_rows, padded_rows, _), count in counts.calls.items():
        calls[real_rows + padded_rows] += count
        rows[real_rows + padded_rows] += real_rows * count
    return [BatchSizeDocument(size=size, calls=calls[size], rows=rows[size]) for size in sorted(calls)]


def _padding(counts: BatchCounts, rows: int) -> PaddingDocument:
    padded = counts.padded_rows()
    row_share = padded / (rows + padded) if padded else 0.0
    compute_s = counts.compute_s.total
    share = counts.wasted_s / compute_s if compute_s else 0.0
    return PaddingDocument(rows=padded, row_share=rounded(row_share), compute_share=rounded(share))


def _curve(learnt: LearntCosts) -> CostCurveDocument:
    return CostCurveDocument(
        outputs=learnt.outputs,
        shape=learnt.shape,
        bucket=learnt.bucket,
        efficient_rows=learnt.pace.efficient_rows,
        calls=[
            CallCostDocument(
                rows=rows, ms=rounded(1e3 * call_s), measured=rows in learnt.measured, machine_ms=rounded(1e3 * pace_s)
            )
            for rows, call_s, pace_s in zip(learnt.curve.sizes, learnt.curve.seconds, learnt.pace.seconds, strict=True)
        ],
    )


def _speed_up(sizes: Iterable[BatchSizeDocument], learnt: LearntCosts) -> float | None:
    curve = learnt.curve
    if curve.sizes[0] not in learnt.measured:
        return None  # the time of one row was only fitted to larger calls
    batched_s = sum(each.calls * curve.call_s(each.size) for each in sizes)
    single_s = sum(each.rows * curve.call_s(1) for each in sizes)
    return rounded(single_s / batched_s) if batched_s else None
