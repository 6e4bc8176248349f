# ruff: noqa: E501 - a case is a line
"""Folds: what is inferred of them, what is rejected, and that nothing that may be written breaks the compiler."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import STRING, ModelSignature
from app.pipelines.references import PipelineInvalid
from tests.pipelines.test_compilation import FLOAT32, INT32, Spec, compiled, fault, model, step, types

STATE: Spec = (FLOAT32, (None, 3))
ONE: Spec = (FLOAT32, (None,))
OTHER: Spec = (FLOAT32, (None, 4))
WHOLE: Spec = (INT32, (None, 3))


def cells(**changes: Mapping[str, ModelSignature]) -> dict[str, Mapping[str, ModelSignature]]:
    def of(inputs: Mapping[str, Spec], outputs: Mapping[str, Spec]) -> Mapping[str, ModelSignature]:
        return {"serving_default": model(inputs, outputs)}

    return {
        "cell": of({"w": ONE, "l": STATE, "r": STATE}, {"s": STATE, "mark": ONE}),
        "turn": of({"w": ONE, "x": STATE}, {"s": STATE}),
        "next": of({"w": ONE, "b": STATE}, {"s": STATE}),
        "above": of({"w": STATE, "b": STATE}, {"s": STATE}),
        "all": of({"x": (FLOAT32, (None, None, 3))}, {"s": STATE}),
        "pair": of({"h": STATE, "c": ONE}, {"h": STATE, "c": ONE}),
        "embed": of({"t": ONE}, {"s": STATE, "other": OTHER, "whole": WHOLE}),
        "wide": of({"l": OTHER, "r": STATE, "w": ONE}, {"s": STATE}),
        "texts": of({"w": ONE, "l": STATE, "r": STATE}, {"s": STATE, "debug": (STRING, (None,))}),
        "open": of({"w": ONE, "l": STATE, "r": STATE}, {"s": STATE, "map": (FLOAT32, (None, None))}),
        "named": of({"w": ONE, "l": STATE, "r": STATE}, {"s": STATE, "root": ONE}),
        "words": of({"w": (STRING, (None,)), "l": STATE, "r": STATE}, {"s": STATE}),
        "nothing": of({"w": ONE, "l": (FLOAT32, (None, 0)), "r": (FLOAT32, (None, 0))}, {"s": (FLOAT32, (None, 0))}),
        **changes,
    }


NODES = "n: {model: cell, inputs: {w: words}, fold: {children: tree, slots: [l, r], state: s%s}}"
TYPED = (
    "n: {inputs: {w: words}, fold: {children: tree, types: kinds, operations: ["
    "{model: cell, slots: [l, r], state: s}, {model: turn, slots: [x], state: s}]}}"
)


def folds(steps: str, outputs: str = "{y: n.root}") -> object:
    return compiled(steps, outputs, **cells())


def rejected(steps: str, outputs: str = "{y: n.root}") -> str:
    return fault(steps, outputs, **cells())


# --- what is inferred ---


@pytest.mark.parametrize(
    ("steps", "outputs", "expected"),
    [
        (NODES % "", "{y: n.root, m: n.mark}", "words=float32[?] tree=int32[?,2] y=float32[?,3] m=float32[?]"),
        (NODES % ", start: leaves", "{y: n.s}", "words=float32[?] tree=int32[?,2] leaves=float32[?,3] y=float32[?,3]"),
        (TYPED, "{y: n.s}", "words=float32[?] tree=int32[?,2] kinds=int32[?] y=float32[?,3]"),
        ("n: {model: next, inputs: {w: words}, fold: {slots: [b], state: s}}", "{y: n.root}",
         "words=float32[?] y=float32[?,3]"),
        ("n: {model: all, fold: {children: tree, slots: {count: 5, input: x}, state: s}}", "{y: n.root}",
         "tree=int32[?,5] y=float32[?,3]"),
        ("n: {model: pair, fold: {children: tree, slots: [{a: h, b: c}], state: {a: h, b: c}}}",
         "{y: n.root_a, z: n.root_b}", "tree=int32[?,1] y=float32[?,3] z=float32[?]"),
    ],
)  # fmt: skip
def test_inputs_and_outputs_have_the_types_of_the_models(steps: str, outputs: str, expected: str) -> None:
    found = types(compiled(steps, outputs, **cells()))
    assert found == dict(each.split("=") for each in expected.split())


def test_leaves_nodes_and_roots_are_rows_of_three_kinds() -> None:
    steps = f"e: {{model: embed, inputs: {{t: tokens}}}}, {NODES % ', start: e.s'}"
    plan = compiled(steps, "{y: n.root, m: n.mark}", **cells())
    fold = step(plan, "n").fold
    assert fold is not None
    assert len({fold.start_kind, fold.node_kind, fold.root_kind}) == 3
    assert plan.kind_of == {"tokens": fold.start_kind, "words": fold.node_kind, "tree": fold.node_kind}
    assert plan.signature.mixed_rows


def test_what_is_listed_together_is_of_one_kind() -> None:
    steps = f"e: {{model: embed, inputs: {{t: t}}, optional: true}}, {NODES % ''}"
    fold = step(compiled(steps, "{y: [e.s, n.root], z: [e.s, n.s]}", **cells()), "n").fold
    assert fold is not None
    assert fold.root_kind == fold.node_kind


def test_a_fold_over_the_roots_and_one_over_the_nodes_of_another() -> None:
    chain = "k: {model: above, inputs: {w: n.%s}, fold: {slots: [b], state: s}}"
    for output, kind in (("root", "root_kind"), ("s", "node_kind")):
        plan = compiled(f"{NODES % ''}, {chain % output}", "{y: k.s}", **cells())
        below, above = step(plan, "n").fold, step(plan, "k").fold
        assert below is not None
        assert above is not None
        assert above.node_kind == getattr(below, kind)


@pytest.mark.parametrize("cell", ["texts", "open"])
def test_an_output_that_nobody_reads_is_not_kept(cell: str) -> None:
    fold = step(compiled((NODES % "").replace("cell", cell), "{y: n.root}", **cells()), "n").fold
    assert fold is not None
    assert fold.arrays.keys() == {"state state", "input w"}


# --- what is rejected ---


@pytest.mark.parametrize(
    ("steps", "outputs", "told"),
    [
        ((NODES % "").replace("cell", "texts"), "{y: n.debug}",
         "step 'n': output 'debug': it is string, but what is kept for each node should be numbers"),
        ((NODES % "").replace("cell", "open"), "{y: n.map}",
         "step 'n': output 'map': it is [?,?], but should have a known size in all dimensions but the first"),
        ((NODES % "").replace("cell", "named"), "{y: n.root}",
         "step 'n': 'root' are the states of roots, but also an output of named: the state should have another name"),
        ((NODES % "").replace("cell", "wide"), "{y: n.root}", "step 'n': state 'state': l is [?,4], but should be [?,3]"),
        ((NODES % "").replace("cell", "words"), "{y: n.root}", "step 'n': input 'w': it is string, but"),
        ((NODES % "").replace("cell", "nothing"), "{y: n.root}", "step 'n': state 'state': it is [?,0], but should have"),
        ((NODES % "").replace("state: s", "state: z"), "{y: n.root}", "step 'n': cell has no output 'z', only 's', 'mark'"),
        ((NODES % "").replace("[l, r]", "[l, z]"), "{y: n.root}", "step 'n': cell has no input 'z', only 'w', 'l', 'r'"),
        ((NODES % "").replace("[l, r]", "[l]"), "{y: n.root}",
         "step 'n': cell needs a value for its input 'r': put it into 'slots' (a child's state) or 'inputs'"),
        ((NODES % "").replace("[l, r]", "[l, l]"), "{y: n.root}", "step 'n': 'slots' should name each input once, but are"),
        ((NODES % "").replace("[l, r]", "[w, l]"), "{y: n.root}", "step 'n': cell needs a value for its input 'r'"),
        ((NODES % "").replace("children: tree, ", ""), "{y: n.root}", "a chain: it should have one slot"),
        ((NODES % "").replace("tree", "words"), "{y: n.root}",
         "step 'n': input 'w': words is int32 elsewhere, but should be float32 here"),
        ((NODES % "").replace("tree", "n.s"), "{y: n.root}",
         "step 'n': 'children' and 'types' should be inputs of the pipeline, not 'n.s'"),
        ((NODES % "").replace("tree", "n"), "{y: n.root}", "step 'n': n is a step: one of its outputs should be named"),
        ((NODES % "").replace("tree", "'.'"), "{y: n.root}", "step 'n': '.' should be an input of the pipeline or"),
        (NODES % ", start: n.root", "{y: n.root}", "steps need each other: n -> n"),
        (NODES % ", start: 0", "{y: n.root}", "step 'n': start 'state': a number may only be the last"),
        ((NODES % "").replace(", state: s", ""), "{y: n.root}", "step 'n': the fold has no 'state'"),
        ((NODES % "").replace("slots: [l, r], state: s", ""), "{y: n.root}", "the fold has no 'slots' and no 'state'"),
        ((NODES % "").replace("model: cell, ", ""), "{y: n.root}", "step 'n': the step has no 'model'"),
        (NODES % ", start: {}", "{y: n.root}", "step 'n': 'start' should have 'state', but has none"),
        (NODES % ", start: {h: x}", "{y: n.root}", "step 'n': 'start' should have 'state', but has 'h'"),
        (NODES % ", types: kinds", "{y: n.root}", "step 'n': 'types' is for a fold with 'operations'"),
        (NODES % "", "{y: n.z}", "output 'y': n.z: its model has no output 'z', only 's', 'mark', 'root'"),
        (NODES % "", "{y: n.root_s}", "output 'y': n.root_s: its model has no output 'root_s'"),
        (NODES % "", '{y: "n.a\\nb"}', "output 'y': n.a b: its model has no output 'a\\nb'"),
        (f"e: {{model: embed, inputs: {{t: t}}}}, {NODES % ', start: e.other'}", "{y: n.root}", "should be [?,3]"),
        (f"e: {{model: embed, inputs: {{t: t}}}}, {NODES % ', start: e.whole'}", "{y: n.root}", "should be float32"),
        (f"e: {{model: embed, inputs: {{t: t}}, optional: true}}, {NODES % ', start: e.s'}", "{y: n.root}",
         "step 'n': some nodes may have no value"),
        (TYPED.replace("types: kinds, ", ""), "{y: n.root}", "several operations need 'types' and 'children'"),
        (TYPED.replace("kinds", "tree"), "{y: n.root}", "step 'n': tree is [?,2] elsewhere, but should be [?] here"),
        ((NODES % ", start: x").replace("[l, r], state: s", "[{h: l}, {h: r}], state: {h: s}"), "{y: n.root_h}",
         "step 'n': 'start' should have 'h', but has 'state' (a state without a name)"),
        ((NODES % "").replace("state: s", "state: {h: s}"), "{y: n.root_h}",
         "step 'n': 'slots' name 'state' (a state without a name), but 'state' has only 'h'"),
        (TYPED.replace("state: s}]", "state: {h: s}}]"), "{y: n.root}", "'state' should have 'state', but has 'h'"),
        (f"{NODES % ''}, k: {{model: all, fold: {{children: tree, slots: {{count: 3, input: x}}, state: s}}}}",
         "{y: n.root, z: k.root}", "step 'k': tree is [?,2] elsewhere, but should be [?,3] here"),
        ("n: {model: cell, inputs: {w: words}, when: words < 1, fold: {children: tree, slots: [l, r], state: s}}",
         "{y: n.root}", "a step with 'fold' has neither 'when' nor 'each', 'optional' or 'timeout_ms'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(steps: str, outputs: str, told: str) -> None:
    assert told in rejected(steps, outputs)


# --- anything ---

names = st.sampled_from(["w", "l", "r", "x", "s", "root", "state", "h", "words", "tree", "n", "n.s", "n.root", "k.root",
                         "n.mark", "e.s", "e.other", "z", "", ".", "a.", "a\nb"])  # fmt: skip
models = st.sampled_from([*cells(), "m"])
sources = st.one_of(names, st.integers(-1, 1), st.lists(st.one_of(names, st.floats()), max_size=3))
by_name = st.one_of(names, st.dictionaries(names, names, max_size=2))
slots = st.one_of(
    by_name, st.lists(by_name, max_size=3), st.fixed_dictionaries({"count": st.integers(0, 3), "input": by_name})
)
operation = st.fixed_dictionaries({"model": models, "slots": slots, "state": by_name})
fold = st.fixed_dictionaries(
    {},
    optional={
        "children": names, "slots": slots, "state": by_name, "types": names, "shared": st.booleans(),
        "start": st.one_of(sources, st.dictionaries(names, sources, max_size=2)),
        "operations": st.lists(operation, max_size=2),
    },
)  # fmt: skip
good_step = st.sampled_from([
    {"model": "cell", "inputs": {"w": "words"}, "fold": {"children": "tree", "slots": ["l", "r"], "state": "s"}},
    {"model": "next", "inputs": {"w": "words"}, "fold": {"slots": ["b"], "state": "s"}},
    {"model": "above", "inputs": {"w": "n.root"}, "fold": {"slots": ["b"], "state": {"h": "s"}, "start": "e.s"}},
    {"model": "embed", "inputs": {"t": "t"}},
])  # fmt: skip
any_step = st.fixed_dictionaries(
    {"inputs": st.dictionaries(names, sources, max_size=2), "fold": fold}, optional={"model": models, "each": names}
)
changed_step = st.builds(
    lambda good, fold, own: {**good, **own, "fold": {**good.get("fold", {}), **fold}},
    good_step,
    fold,
    st.fixed_dictionaries({}, optional={"inputs": st.dictionaries(names, sources, max_size=2), "model": models}),
)
steps = st.one_of(good_step, any_step, changed_step)


@given(
    st.dictionaries(st.sampled_from(["n", "k", "e"]), steps, min_size=1, max_size=3),
    st.dictionaries(names, sources, min_size=1, max_size=2),
)
def test_every_text_gives_a_plan_or_one_line_that_names_a_place(
    written: Mapping[str, object], outputs: Mapping[str, object]
) -> None:
    told, plan = "", None
    try:
        plan = compiled(json.dumps(written)[1:-1], json.dumps(outputs), **cells())
    except PipelineInvalid as error:
        told = str(error)
    assert len(told.splitlines()) == (plan is None)
    for each in plan.steps if plan is not None else ():
        assert each.fold is None or all(np.prod(shape) > 0 for shape, _ in each.fold.arrays.values())
