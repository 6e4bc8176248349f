from collections.abc import Mapping
from math import inf

import ml_dtypes
import numpy as np
import pytest

from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import STRING, Dimension, ModelSignature, SparseParts, TensorSpec
from app.pipelines.compilation import compile_pipeline, models_of
from app.pipelines.document import parse
from app.pipelines.plan import INPUT, Gather, Plan, StepPlan
from app.pipelines.references import ModelReference, PipelineInvalid, Reference

Shape = tuple[Dimension, ...] | None

FLOAT32, INT32, BFLOAT16 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(ml_dtypes.bfloat16)

#: Of an input or output: its type, and the shape of all rows.
Spec = tuple[np.dtype, Shape]

ROW: Spec = (FLOAT32, (None, 2))
ONE: Spec = (FLOAT32, (None,))


def model(inputs: Mapping[str, Spec], outputs: Mapping[str, Spec], name: str = "serving_default") -> ModelSignature:
    def specs(pairs: Mapping[str, Spec]) -> dict[str, TensorSpec]:
        return {each: TensorSpec(each, dtype, shape) for each, (dtype, shape) in pairs.items()}

    return ModelSignature(name, specs(inputs), specs(outputs))


MODELS: Mapping[str, ModelSignature] = {
    "m": model({"x": ROW}, {"y": ROW, "score": ONE}),
    "two": model({"a": ROW, "b": ROW}, {"y": ROW}),
    "whole": model({"x": (INT32, (None, 2))}, {"y": (INT32, (None, 2))}),
    "words": model({"x": (STRING, (None,))}, {"y": (STRING, (None,))}),
    "bits": model({"x": (np.dtype(bool), (None,))}, {"y": (BFLOAT16, (None,))}),
    "half": model({"x": (BFLOAT16, (None,))}, {"y": (BFLOAT16, (None,))}),
    "wide": model({"x": (FLOAT32, (None, None))}, {"y": (FLOAT32, (None, 3))}),
    "any": model({"x": ONE}, {"y": (FLOAT32, None)}),
    "boxes": model({"x": ROW}, {"boxes": (FLOAT32, (None, None, 2))}),
    "fixed": model({"x": (FLOAT32, (1, 2))}, {"y": ROW}),
    "free": model({"x": ROW}, {"y": (FLOAT32, (4,))}),
}


def compiled(steps: str, outputs: str = "{y: a.y}", **more: Mapping[str, ModelSignature]) -> Plan:
    def find(reference: ModelReference) -> Mapping[str, ModelSignature]:
        if reference.name in more:
            return more[reference.name]
        return {"serving_default": MODELS[reference.name]}

    return compile_pipeline(parse(f"steps: {{{steps}}}\noutputs: {outputs}".encode()), find)


def fault(steps: str, outputs: str = "{y: a.y}", **more: Mapping[str, ModelSignature]) -> str:
    with pytest.raises(PipelineInvalid) as caught:
        compiled(steps, outputs, **more)
    return str(caught.value)


def types(plan: Plan) -> dict[str, str]:
    return {name: str(spec) for name, spec in (*plan.signature.inputs.items(), *plan.signature.outputs.items())}


def step(plan: Plan, name: str) -> StepPlan:
    (found,) = [each for each in plan.steps if each.name == name]
    return found


# --- types and shapes ---


def test_inputs_and_outputs_have_the_types_of_the_models() -> None:
    assert types(compiled("a: {model: m, inputs: {x: image}}", "{y: a.y, s: a.score}")) == {
        "image": "float32[?,2]",
        "y": "float32[?,2]",
        "s": "float32[?]",
    }


@pytest.mark.parametrize("steps", ["a: {model: m, inputs: {x: i}}, b: {model: wide, inputs: {x: i}}",
                                   "b: {model: wide, inputs: {x: i}}, a: {model: m, inputs: {x: i}}"])  # fmt: skip
def test_an_input_that_several_steps_read_fits_all_of_them(steps: str) -> None:
    assert types(compiled(steps, "{y: a.y, z: b.y}"))["i"] == "float32[?,2]"


def test_an_input_of_two_types_is_rejected() -> None:
    told = fault("a: {model: m, inputs: {x: i}}, b: {model: whole, inputs: {x: i}}", "{y: a.y, z: b.y}")
    assert told == "step 'b': input 'x': i is float32 elsewhere, but should be int32 here"


def test_an_input_of_two_shapes_is_rejected() -> None:
    told = fault("a: {model: m, inputs: {x: i}}, b: {model: any, inputs: {x: i}}", "{y: a.y, z: b.y}")
    assert told == "step 'b': input 'x': i is [?,2] elsewhere, but should be [?] here"


def test_a_step_of_another_type_is_rejected() -> None:
    told = fault("a: {model: m, inputs: {x: i}}, b: {model: whole, inputs: {x: a.y}}", "{y: b.y}")
    assert told == "step 'b': input 'x': a.y is float32, but should be int32"


def test_a_step_of_another_shape_is_rejected() -> None:
    told = fault("a: {model: wide, inputs: {x: i}}, b: {model: m, inputs: {x: a.y}}", "{y: b.y}")
    assert told == "step 'b': input 'x': a.y is [?,3], but should be [?,2]"


def test_an_output_of_unknown_rank_fits_every_input() -> None:
    plan = compiled("a: {model: any, inputs: {x: i}}, b: {model: m, inputs: {x: a.y}}", "{y: b.y, z: a.y}")
    assert types(plan)["z"] == "float32<unknown rank>"


def test_an_output_of_several_steps_holds_the_shapes_of_all() -> None:
    steps = "a: {model: m, inputs: {x: i}}, b: {model: wide, inputs: {x: i}, when: a.score < 1}"
    assert types(compiled(steps, "{y: [b.y, a.y]}"))["y"] == "float32[?,?]"


def test_an_output_of_steps_of_different_types_is_rejected() -> None:
    steps = "a: {model: m, inputs: {x: i}}, b: {model: whole, inputs: {x: j}}"
    assert fault(steps, "{y: [a.y, b.y]}") == "output 'y': b.y is int32, but a.y is float32"


def test_an_output_of_steps_of_different_ranks_is_rejected() -> None:
    steps = "a: {model: m, inputs: {x: i}}"
    assert fault(steps, "{y: [a.y, a.score]}") == "output 'y': a.score has another rank than a.y"


def test_an_input_may_be_handed_back() -> None:
    assert types(compiled("a: {model: m, inputs: {x: i}}", "{y: a.y, z: i}"))["z"] == "float32[?,2]"


def test_an_output_that_no_step_reads_as_an_input_is_rejected() -> None:
    assert fault("a: {model: m, inputs: {x: i}}", "{y: a.y, z: j}").startswith("output 'z': j is no input of a step")


# --- each ---


def test_elements_are_rows_of_a_step_and_gathered_again() -> None:
    steps = "boxes: {model: boxes, inputs: {x: i}}, a: {model: m, inputs: {x: boxes.boxes}, each: x}"
    plan = compiled(steps, "{y: a.y, s: a.score}")
    assert types(plan) == {"i": "float32[?,2]", "y": "float32[?,?,2]", "s": "float32[?,?]"}
    assert step(plan, "a").each
    assert step(plan, "a").inputs["x"].spread


def test_inputs_that_are_not_taken_apart_are_repeated() -> None:
    plan = compiled("a: {model: two, inputs: {a: i, b: j}, each: a}")
    assert types(plan) == {"i": "float32[?,?,2]", "j": "float32[?,2]", "y": "float32[?,?,2]"}
    assert {name: gather.spread for name, gather in step(plan, "a").inputs.items()} == {"a": True, "b": False}


def test_what_has_no_elements_is_not_taken_apart() -> None:
    told = fault("a: {model: m, inputs: {x: i}}, b: {model: m, inputs: {x: a.y}, each: x}", "{y: b.y}")
    assert told == "step 'b': input 'x': a.y is [?,2], but should be [?,?,2]"


def test_only_inputs_of_the_step_are_taken_apart() -> None:
    told = fault("a: {model: m, inputs: {x: i}, each: [x, z]}")
    assert told == "step 'a': 'each' should name inputs of the step, but names 'z'"


# --- rows without a value ---

UNSURE = "a: {model: m, inputs: {x: i}}, b: {model: m, inputs: {x: i}, when: a.score < 1}"


@pytest.mark.parametrize("outputs", ["{y: b.y}", "{y: [b.y, b.y]}"])
@pytest.mark.parametrize("how", ["when: a.score < 1", "optional: true", "optional: true, timeout_ms: 5"])
def test_an_output_that_may_lack_rows_is_rejected(how: str, outputs: str) -> None:
    steps = f"a: {{model: m, inputs: {{x: i}}}}, b: {{model: m, inputs: {{x: i}}, {how}}}"
    assert fault(steps, outputs.replace("}", ", z: a.y}")).startswith("output 'y': some rows may have no value")


def test_a_step_behind_one_that_lacks_rows_lacks_them_too() -> None:
    told = fault(UNSURE + ", c: {model: m, inputs: {x: b.y}}", "{y: c.y}")
    assert told.startswith("output 'y': some rows may have no value")


@pytest.mark.parametrize("output", ["[b.y, a.y]", "[b.y, 0]", "[b.y, i]", "[b.y, -1.5]"])
def test_rows_that_are_left_come_from_another_step_an_input_or_a_number(output: str) -> None:
    assert types(compiled(UNSURE, f"{{y: {output}}}"))["y"] == "float32[?,2]"


def test_a_number_for_the_rest_makes_an_input_of_a_step_whole() -> None:
    plan = compiled(UNSURE + ", c: {model: m, inputs: {x: [b.y, 0.5]}}", "{y: c.y}")
    assert step(plan, "c").inputs["x"].rest == 0.5


@pytest.mark.parametrize(
    ("name", "rest", "want"),
    [
        ("whole", "0.5", "0.5 is no int32, but should be a whole number"),
        ("whole", "3000000000", "3000000000 does not fit into int32"),
        ("words", "0", "0 is no string, but should be an output of a step or an input of this type"),
        ("bits", "1", "1 is no bool, but should be an output of a step or an input of this type"),
        ("m", "1.0e+39", "1e+39 does not fit into float32"),
        ("m", "-1" + 400 * "0", " does not fit into float32"),
        ("half", "1.0e+39", "1e+39 does not fit into bfloat16"),
    ],
)
def test_a_number_that_is_none_of_the_type_is_rejected(name: str, rest: str, want: str) -> None:
    told = fault(f"a: {{model: {name}, inputs: {{x: [i, {rest}]}}}}")
    assert told.startswith("step 'a': input 'x': ")
    assert told.endswith(want)


@pytest.mark.parametrize(
    ("name", "rest"), [("m", ".nan"), ("m", "-.inf"), ("m", "7"), ("half", ".inf"), ("whole", "-7")]
)
def test_a_number_of_the_type_is_taken(name: str, rest: str) -> None:
    assert compiled(f"a: {{model: {name}, inputs: {{x: [i, {rest}]}}}}")


@pytest.mark.parametrize("sources", ["1", "[1, 2]", "[1, i]", "[i, 1, 2]"])
def test_numbers_alone_or_before_others_are_rejected(sources: str) -> None:
    want = "a number may only be the last of a list, after a step.output or an input: [step.output, 0.5]"
    assert fault(f"a: {{model: m, inputs: {{x: {sources}}}}}").startswith("step 'a': input 'x': ")
    assert want in fault(f"a: {{model: m, inputs: {{x: {sources}}}}}")
    assert want in fault("a: {model: m, inputs: {x: i}}", f"{{y: {sources}}}")


# --- names ---


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        (
            "a: {model: m, inputs: {x: .y}}",
            "step 'a': input 'x': '.y' should be an input of the pipeline or 'step.output'",
        ),
        ("a: {model: m, inputs: {x: b.y}}", "step 'a': b.y: there is no step 'b', only 'a'"),
        ("a: {model: m, inputs: {x: i}, when: b.y < 1}", "step 'a': b.y: there is no step 'b', only 'a'"),
        (
            "a: {model: m, inputs: {x: i}}, b: {model: m, inputs: {x: a.z}}",
            "step 'b': a.z: its model has no output 'z', only 'y', 'score'",
        ),
        (
            "a: {model: m, inputs: {x: i}}, b: {model: m, inputs: {x: a}}",
            "step 'b': a is a step: one of its outputs should be named, as a.output",
        ),
        ("a: {model: m, inputs: {z: i, x: i}}", "step 'a': m has no input 'z', only 'x'"),
        ("a: {model: two, inputs: {a: i}}", "step 'a': two needs a value for its input 'b'"),
        ("a: {model: 'm:', inputs: {x: i}}", "step 'a': model 'm:' should be 'name', 'name:label' or 'name:version'"),
        ("a: {model: m, inputs: {x: i}, timeout_ms: 5}", "step 'a': 'timeout_ms' is for steps that are optional"),
        (
            "a: {model: m, signature: f, inputs: {x: i}}",
            "step 'a': 'signature' should be one of those of m: 'serving_default', but is 'f'",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_step(steps: str, want: str) -> None:
    assert fault(steps) == want


@pytest.mark.parametrize(
    ("output", "want"),
    [
        ("b.y", "b.y: there is no step 'b', only 'a'"),
        ("a.z", "a.z: its model has no output 'z', only 'y', 'score'"),
        ("a", "a is a step: one of its outputs should be named, as a.output"),
        ("a.", "'a.' should be an input of the pipeline or 'step.output'"),
    ],
)
def test_a_fault_of_an_output_is_named_with_it(output: str, want: str) -> None:
    told = fault("a: {model: m, inputs: {x: i}}", f"{{y: a.y, z: {output}}}")
    assert told == f"output 'z': {want}"


def test_a_step_that_nothing_uses_is_named() -> None:
    told = fault("a: {model: m, inputs: {x: i}}, c: {model: m, inputs: {x: i}}, b: {model: m, inputs: {x: i}}")
    assert told == "nothing uses the outputs of 'b', 'c'"


def test_a_step_that_only_a_condition_reads_is_used() -> None:
    assert compiled(UNSURE, "{y: [b.y, i]}")


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ("a: {model: m, inputs: {x: a.y}}", {"a -> a"}),
        ("a: {model: m, inputs: {x: b.y}}, b: {model: m, inputs: {x: a.y}}", {"a -> b -> a", "b -> a -> b"}),
        (
            "a: {model: m, inputs: {x: i}, when: b.score < 1}, b: {model: m, inputs: {x: a.y}}",
            {"a -> b -> a", "b -> a -> b"},
        ),
        (
            "a: {model: m, inputs: {x: b.y}}, b: {model: m, inputs: {x: c.y}}, c: {model: m, inputs: {x: a.y}}",
            {"a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"},
        ),
    ],
)  # fmt: skip
def test_steps_that_need_each_other_are_named_in_turn(steps: str, want: set[str]) -> None:
    assert fault(steps).removeprefix("steps need each other: ") in want


# --- signatures ---


def test_a_model_of_one_signature_needs_no_name_of_it() -> None:
    only = {"f": model({"x": ROW}, {"y": ROW}, "f")}
    assert step(compiled("a: {model: own, inputs: {x: i}}", own=only), "a").signature == "f"


def test_the_default_signature_is_taken_unless_another_is_named() -> None:
    both = {name: model({"x": ROW}, {"y": ROW}, name) for name in ("f", "serving_default")}
    assert step(compiled("a: {model: own, inputs: {x: i}}", own=both), "a").signature == "serving_default"
    assert step(compiled("a: {model: own, signature: f, inputs: {x: i}}", own=both), "a").signature == "f"


def test_one_of_several_signatures_without_a_default_is_to_be_named() -> None:
    both = {name: model({"x": ROW}, {"y": ROW}, name) for name in ("f", "g")}
    told = fault("a: {model: own, inputs: {x: i}}", own=both)
    assert told == "step 'a': 'signature' should be one of those of own: 'f', 'g'"
    assert fault("a: {model: own, inputs: {x: i}}", own={}).startswith("step 'a': own was saved without signatures")


@pytest.mark.parametrize(
    ("signature", "which"),
    [
        (MODELS["fixed"], "'x' is [1,2]"),
        (MODELS["free"], "'y' is [4]"),
        (model({"x": ROW, "k": (FLOAT32, ())}, {"y": ROW}), "'k' is []"),
        (ModelSignature("f", MODELS["m"].inputs, MODELS["m"].outputs, ragged={"x": ("x_1",)}), "'x' is ragged"),
        (ModelSignature("f", MODELS["m"].inputs, MODELS["m"].outputs, ragged_outputs={"y": ("y_1",)}), "'y' is ragged"),
        (
            ModelSignature("f", MODELS["m"].inputs, MODELS["m"].outputs, sparse=(SparseParts("i", "x", "s"),)),
            "'x' is sparse",
        ),
    ],
    ids=["fixed input", "fixed output", "scalar input", "ragged input", "ragged output", "sparse input"],
)
def test_a_model_whose_rows_are_not_the_first_dimension_is_rejected(signature: ModelSignature, which: str) -> None:
    told = fault("a: {model: own, inputs: {x: i}}", own={"f": signature})
    assert told.startswith("step 'a': own: a step's model should have a free first dimension")
    assert told.endswith(f"ones, but {which}")


def test_a_model_whose_rows_need_not_be_equally_many_may_be_a_step_since_here_they_are() -> None:
    two = MODELS["two"]
    mixes = GraphRows({"y": OutputRows("mixes", "Sum")}, frozenset({"a", "b"}), unequal=True)
    signature = ModelSignature("f", two.inputs, two.outputs, graph_rows=mixes)
    assert not signature.shares_calls
    assert types(compiled("a: {model: own, inputs: {a: i, b: i}}", own={"f": signature})).keys() == {"i", "y"}


def test_inputs_with_defaults_may_be_left_out() -> None:
    two = MODELS["two"]
    signature = ModelSignature("f", two.inputs, two.outputs, defaults={"b": np.zeros(2, FLOAT32)})
    assert types(compiled("a: {model: own, inputs: {a: i}}", own={"f": signature})).keys() == {"i", "y"}


def test_what_find_raises_comes_through() -> None:
    with pytest.raises(KeyError, match="nobody"):
        compiled("a: {model: nobody, inputs: {x: i}}")


# --- the order of a list ---


@pytest.mark.parametrize("sources", ["[small.y, big.y]", "[small.y, big.y, 0]", "[big.y, small.y, big.y]"])
def test_what_stands_behind_a_step_with_all_rows_would_never_be_used(sources: str) -> None:
    steps = "small: {model: m, inputs: {x: i}}, big: {model: m, inputs: {x: i}, when: small.score < 1}"
    told = "big.y is never used, as small.y, which stands before it, has all rows: put it first"
    assert fault(steps, f"{{y: {sources}}}") == f"output 'y': {told}"
    reader = f"{steps}, a: {{model: m, inputs: {{x: {sources}}}}}"
    assert fault(reader) == f"step 'a': input 'x': {told}"
    assert fault(reader.replace(sources, "[i, big.y]")).startswith(
        "step 'a': input 'x': big.y is never used, as i, which"
    )
    assert compiled(steps, "{y: [big.y, small.y]}")


def test_elements_that_would_fit_as_rows_are_pointed_out() -> None:
    steps = "a: {model: boxes, inputs: {x: i}}, b: {model: m, inputs: {x: %s}}"
    assert fault(steps % "a.boxes", "{y: b.y}") == (
        "step 'b': input 'x': a.boxes is [?,?,2], but should be [?,2] (to pass each element as a row, write 'each: x')"
    )
    three = {
        "three": {
            "serving_default": model({"x": ROW}, {"boxes": (FLOAT32, (None, 3, 2)), "wide": (FLOAT32, (None, 3, 5))})
        }
    }
    with_three = steps.replace("boxes,", "three,")
    assert fault(with_three % "a.boxes", "{y: b.y}", **three).endswith(
        "is [?,3,2], but should be [?,2] (to pass each of the 3 as a row, write 'each: x')"
    )
    assert fault(with_three % "a.wide", "{y: b.y}", **three).endswith("is [?,3,5], but should be [?,2]")


# --- conditions ---


def test_a_condition_reads_inputs_that_any_step_reads() -> None:
    steps = "a: {model: m, inputs: {x: i}, when: j < 1}, b: {model: any, inputs: {x: j}}"
    assert step(compiled(steps, "{y: [a.y, 0], z: b.y}"), "a").conditional.keys() == {Reference("", "j")}


def test_a_condition_on_an_input_that_no_step_reads_is_rejected() -> None:
    told = fault("a: {model: m, inputs: {x: i}, when: j < 1}")
    assert told == (
        "step 'a': 'when' reads 'j', which no step takes as an input. A condition may read outputs of steps and inputs "
        "that some step takes"
    )


@pytest.mark.parametrize(
    ("when", "want"),
    [
        ("a.y < 1", "compares a.y, which should have one value for each row"),
        ("i < 1", "compares i, which should have one value for each row"),
        ("a.score == 'cat'", "one is a number, the other is text"),
        ("a.score", "'when' has 'a.score', but should be a comparison"),
    ],
)
def test_a_condition_that_cannot_read_its_rows_is_rejected(when: str, want: str) -> None:
    told = fault(
        f'a: {{model: m, inputs: {{x: i}}}}, b: {{model: m, inputs: {{x: i}}, when: "{when}"}}', "{y: [b.y, a.y]}"
    )
    assert told.startswith("step 'b': 'when' ")
    assert want in told


# --- the plan ---

DIAMOND = (
    "d: {model: two, inputs: {a: c.y, b: b.y}}, b: {model: m, inputs: {x: a.y}}, "
    "c: {model: m, inputs: {x: a.y}, when: max(b.y) < 1}, a: {model: 'm:stable', inputs: {x: i}}"
)


def test_each_step_comes_after_those_that_it_needs() -> None:
    plan = compiled(DIAMOND, "{y: [d.y, b.y], s: a.score}")
    assert [each.name for each in plan.steps] == ["a", "b", "c", "d"]
    assert [each.number for each in plan.steps] == [0, 1, 2, 3]
    assert [each.needs for each in plan.steps] == [(), (0,), (0, 1), (1, 2)]
    assert [each.feeds for each in plan.steps] == [(1, 2), (2, 3), (3,), ()]


def test_values_are_numbered_once_and_inputs_first() -> None:
    plan = compiled(DIAMOND, "{y: [d.y, b.y], s: a.score}")
    assert {name: value.number for name, value in plan.inputs.items()} == {"i": 0}
    assert plan.inputs["i"].step == INPUT
    values = [*plan.inputs.values(), *[value for each in plan.steps for value in each.outputs]]
    assert sorted(value.number for value in values) == list(range(plan.values))


def test_a_step_has_the_outputs_that_are_used() -> None:
    plan = compiled("a: {model: m, inputs: {x: i}}, b: {model: m, inputs: {x: a.y}}", "{y: b.score}")
    assert [[value.name for value in each.outputs] for each in plan.steps] == [["y"], ["score"]]


def test_a_plan_says_what_is_wanted_of_each_step() -> None:
    plan = compiled(UNSURE.replace("when", "optional: true, timeout_ms: 250, when"), "{y: [b.y, a.y, 7]}")
    first, second = plan.steps
    assert (first.optional, first.timeout_s, first.condition) == (False, inf, None)
    assert (second.optional, second.timeout_s) == (True, 0.25)
    assert second.condition is not None
    assert second.conditional == {Reference("a", "score"): first.outputs[0]}
    assert plan.outputs["y"] == Gather((second.outputs[0], first.outputs[1]), plan.signature.outputs["y"], 7)


def test_a_request_for_some_outputs_takes_the_steps_that_lead_to_them() -> None:
    plan = compiled(DIAMOND, "{y: [d.y, b.y], s: a.score, i: i}")
    assert plan.way(("s",)).needed == {0}
    assert plan.way(("y",)).needed == plan.way(()).needed == {0, 1, 2, 3}
    assert plan.way(("i",)).needed == frozenset()


def test_models_are_named_once_with_their_pins() -> None:
    text = parse(f"steps: {{{DIAMOND}}}\noutputs: {{y: d.y}}".encode())
    assert list(models_of(text)) == [ModelReference("two"), ModelReference("m"), ModelReference("m", label="stable")]


def test_a_model_that_is_no_reference_is_named_with_its_step() -> None:
    with pytest.raises(PipelineInvalid, match=r"step 'a': model ':1' should be 'name'"):
        models_of(parse(b"steps: {a: {model: ':1', inputs: {x: i}}}\noutputs: {y: a.y}"))
