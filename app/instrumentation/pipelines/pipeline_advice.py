"""Advice that would make a pipeline faster, such as to fuse steps into one SavedModel, in plain sentences. Pure.

Two steps are better fused if nothing speaks for separate calls: the same rows take both, no other request asks their
models, and their batches are equally large; and if it saves enough: the second no longer waits, and the pipeline has no
work between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app.core.batching_explanation import PipelineExplanation, StepExplanation

# All numbers here are chosen.

#: Fewer requests say little.
_LEAST_REQUESTS = 20

#: The share of the time that fusing must save to be worth an export.
_NOTABLE = 0.1

#: The shares from which on rows count as all rows, a step takes nearly all of the time, or waits for most of it.
_ALL, _NEARLY_ALL, _MOST = 0.99, 0.9, 0.5

#: The share of requests from which on a model counts as asked from elsewhere, too.
_SOME = 0.01

#: The ratio up to which batches count as equally large.
_EQUAL = 1.25

#: The meaning of a step's form for its calls.
_FORMS = {
    "each": "each element of a row is a row for it, so its batches are larger",
    "fold": "it computes trees, in many calls",
    "optional": "it may fail without the request",
}


def advise_pipeline(pipeline: PipelineExplanation) -> list[str]:
    """The advice for a pipeline: at least one sentence."""
    if pipeline.missing:
        return [f"it answers no requests: it {pipeline.missing}."]
    answered = pipeline.requests.get("answered", 0)
    if answered < _LEAST_REQUESTS or pipeline.total_ms is None:
        return [f"requests answered so far: {answered}; ask again after some traffic."]
    found = [
        *_fusions(pipeline),
        *_gates(pipeline.steps),
        *_failing_steps(pipeline.steps),
        *_slow_steps(pipeline),
    ]
    return found or [
        f"nothing to change: a request takes {_ms(pipeline, 1)}, of which {pipeline.overhead_share:.0%} is the "
        "pipeline's own work."
    ]


# --- steps that are better fused, or not ---


def _fusions(pipeline: PipelineExplanation) -> Iterator[str]:
    steps = {each.step: each for each in pipeline.steps}
    chains, not_fused = _chains(steps)
    for chain in chains:
        saved = _saved(pipeline, chain)
        if saved >= _NOTABLE:
            yield _fuse(pipeline, chain, saved)
    for step, reason in not_fused:
        saved = _saved(pipeline, [steps[step.needs[-1]], step])
        if saved >= _NOTABLE:
            yield (
                f"requests wait {_ms(pipeline, saved)} ({saved:.0%} of their time) between step {step.step!r} and what "
                f"it needs. Do not fuse them all the same: {reason}."
            )


def _chains(
    steps: Mapping[str, StepExplanation],
) -> tuple[Sequence[Sequence[StepExplanation]], Sequence[tuple[StepExplanation, str]]]:
    """Chains of steps that can be fused; and steps that are better not fused with the step before, and why.

    Two steps that need the same one run side by side: at most one of them is fused with it.
    """
    chain_of: dict[str, list[StepExplanation]] = {}
    not_fused = []
    for step in steps.values():
        before = steps[step.needs[-1]] if step.needs else None
        reason = _why_not_fused(before, step) if before else ""
        chain = chain_of.get(before.step, []) if before else []
        if before and not reason and chain[-1] is before:
            chain.append(step)
            chain_of[step.step] = chain
        else:
            chain_of[step.step] = [step]
        if reason:
            not_fused.append((step, reason))
    chains = {id(chain): chain for chain in chain_of.values() if len(chain) > 1}
    return list(chains.values()), not_fused


def _why_not_fused(before: StepExplanation, step: StepExplanation) -> str:
    """The reason why two steps are better not fused; empty if there is none."""
    for each in (step, before):
        for form in each.forms:
            return f"{each.step!r} has {form!r}: {_FORMS[form]}"
    return _different_rows(before, step) or _different_calls(before, step)


def _different_rows(before: StepExplanation, step: StepExplanation) -> str:
    a, b = repr(before.step), repr(step.step)
    if step.condition is not None:
        return f"{b} has 'when' and computes {step.row_share:.0%} of the rows; fused it would compute all"
    if len(step.needs) > 1:
        return f"{b} needs {_names(step.needs)}, which run side by side or take different rows"
    if step.rows < _ALL * before.rows or step.computed < _ALL * before.computed:
        return f"{b} computes {step.rows} rows of the {before.rows} of {a}"
    return ""


def _different_calls(before: StepExplanation, step: StepExplanation) -> str:
    for each in (before, step):
        if each.elsewhere_share >= _SOME:
            return (
                f"{each.elsewhere_share:.0%} of the requests to the model of {each.step!r} come from elsewhere, and "
                "share its calls and its memory"
            )
    large, small = sorted([before.rows_per_call, step.rows_per_call], reverse=True)
    if large > _EQUAL * small:
        return (
            f"each has batches of its own size: {before.rows_per_call:.3g} rows in those of "
            f"{before.step!r}, {step.rows_per_call:.3g} in those of {step.step!r}"
        )
    return ""


def _saved(pipeline: PipelineExplanation, chain: Sequence[StepExplanation]) -> float:
    """The share of the requests' time that a fused model would save: later waits, and the work between the steps."""
    between = pipeline.overhead_share * (len(chain) - 1) / len(pipeline.steps)
    return sum(each.wait_share for each in chain[1:]) + between


def _fuse(pipeline: PipelineExplanation, chain: Sequence[StepExplanation], saved: float) -> str:
    names, rows = _names([each.step for each in chain]), " and ".join(f"{each.rows_per_call:.3g}" for each in chain)
    return (
        f"fuse the steps {names} into one SavedModel: the same rows take them, nobody else asks "
        f"their models, and their batches are equally large ({rows} rows). That would save {saved:.0%} of the "
        f"time of a request ({_ms(pipeline, saved)} of {_ms(pipeline, 1)}), in which it waits between them."
    )


# --- gates ---


def _gates(steps: Sequence[StepExplanation]) -> Iterator[str]:
    by_name = {each.step: each for each in steps}
    for step in steps:
        seen = step.computed + step.passed_over
        if step.condition is None or seen < _LEAST_REQUESTS:
            continue
        read = [by_name[name] for name in step.condition]
        offered = min([each.row_share for each in read], default=1.0)
        if not step.rows:
            yield (
                f"no row of {seen} requests has passed the 'when' of step {step.step!r}: see whether the condition is "
                "meant so. If it is, the step can go."
            )
        elif step.row_share >= _ALL * offered:
            yield (
                f"{min(1.0, step.row_share / offered):.1%} of the rows pass the 'when' of step {step.step!r}, so it "
                f"decides nothing{_wasted(read)}. Make the condition stricter, or leave it out."
            )


def _wasted(read: Sequence[StepExplanation]) -> str:
    if not read:
        return ""
    computed = sum(each.compute_share for each in read)
    return f", and {_names([each.step for each in read])}, computed for {computed:.0%} of the time, may be of no use"


# --- steps that may fail ---


def _failing_steps(steps: Sequence[StepExplanation]) -> Iterator[str]:
    """Advice for optional steps that fail: requests are answered without them, so nothing else shows it."""
    for step in steps:
        seen = step.computed + step.failed
        if "optional" in step.forms and seen >= _LEAST_REQUESTS and step.failed >= _MOST * seen:
            yield (
                f"{step.step!r} failed {step.failed} of {seen} times: its timeout_ms may be shorter than a call of its "
                "model."
            )


# --- where the time goes ---


def _slow_steps(pipeline: PipelineExplanation) -> Iterator[str]:
    for step in pipeline.steps:
        pages = " and ".join(f"/v1/models/{each.rpartition('/')[0]}/batching" for each in step.models)
        if step.compute_share >= _NEARLY_ALL:
            yield (
                f"step {step.step!r} is computed for {step.compute_share:.0%} of the time, so nothing else matters: "
                f"{pages} says what would help."
            )
        elif step.wait_share >= _MOST:
            yield (
                f"requests wait at step {step.step!r} for {step.wait_share:.0%} of their time "
                f"({_ms(pipeline, step.wait_share)}): {pages} says why."
            )


def _ms(pipeline: PipelineExplanation, share: float) -> str:
    ms = share * (pipeline.total_ms.mean if pipeline.total_ms else 0.0)
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms"


def _names(names: Sequence[str]) -> str:
    quoted = [*map(repr, names)]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
