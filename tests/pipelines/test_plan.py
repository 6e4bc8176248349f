from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.inference import ModelSignature, TensorSpec
from app.pipelines.plan import INPUT, Gather, Plan, StepPlan, Value
from app.pipelines.references import ModelReference

SPEC = TensorSpec("y", np.dtype(np.float32), (None,))
Graph = list[frozenset[int]]

#: For each step those before it that it needs.
graphs = st.integers(1, 7).flatmap(
    lambda count: st.tuples(
        *[st.frozensets(st.integers(0, number - 1)) if number else st.just(frozenset[int]()) for number in range(count)]
    ).map(list)
)


def plan_of(needs: Graph) -> Plan:
    """One output for each step, by its number, and `x`, which no step computes."""
    steps = [
        StepPlan(
            number, f"s{number}", (ModelReference(f"m{number % 2}"),), "f", {}, None, {}, False, False, inf, (),
            tuple(sorted(needs[number])), tuple(other for other in range(len(needs)) if number in needs[other]),
        )
        for number in range(len(needs))
    ]  # fmt: skip
    outputs = {str(number): Gather((Value(number + 1, number, "y"),), SPEC) for number in range(len(needs))}
    outputs["x"] = Gather((Value(0, INPUT, "x"),), SPEC)
    signature = ModelSignature("f", {"x": SPEC}, dict.fromkeys(outputs, SPEC))
    return Plan(signature, steps, {"x": Value(0, INPUT, "x")}, len(needs) + 1, outputs)


def needed_by_recursion(needs: Graph, step: int) -> set[int]:
    return {step}.union(*[needed_by_recursion(needs, each) for each in needs[step]])


@settings(max_examples=100)
@given(graphs, st.data())
def test_needed_steps_are_those_that_lead_to_the_outputs(needs: Graph, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.sampled_from(range(len(needs))), min_size=1))
    want = set[int]().union(*[needed_by_recursion(needs, each) for each in wanted])
    plan = plan_of(needs)
    for _ in range(2):  # the second time it is remembered
        assert plan.way(tuple(map(str, wanted))).needed == want


def test_a_request_for_no_outputs_in_particular_takes_all_steps() -> None:
    assert plan_of([frozenset(), frozenset(), frozenset({1})]).way(()).needed == {0, 1, 2}


def test_an_input_that_is_handed_back_takes_no_step() -> None:
    assert plan_of([frozenset()]).way(("x",)).needed == frozenset()


def test_many_subsets_of_outputs_are_answered_and_few_remembered() -> None:
    plan = plan_of([frozenset()] * 10)
    for subset in range(1, 1024):
        steps = [step for step in range(10) if subset >> step & 1]
        assert plan.way(tuple(map(str, steps))).needed == set(steps)
    assert len(plan._ways) == 256


def test_each_model_is_named_once_in_the_order_of_the_steps() -> None:
    assert plan_of([frozenset()] * 4).models == [ModelReference("m0"), ModelReference("m1")]
