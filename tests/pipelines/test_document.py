import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.pipelines.document import MOST_BYTES, MOST_STEPS, StackedSlots, parse
from app.pipelines.references import PipelineInvalid

SMALLEST = b"""
steps:
  a: {model: m, inputs: {x: x}}
outputs: {y: a.y}
"""

CASCADE = b"""
# models/read/3/pipeline.yaml: a cascade that asks the big model only where the small one is unsure
steps:
  pixels: {model: resize, inputs: {image: image}}
  small:  {model: mobilenet-s, inputs: {image: pixels.pixels}}
  big:    {model: "mobilenet-l:stable", inputs: {image: pixels.pixels}, when: small.confidence < 0.8}  # by row
outputs: {logits: [big.logits, small.logits]}  # the first
"""

TREES = b"""
steps:
  leaves: {model: embed, inputs: {token: tokens}}
  nodes:  {model: cell, fold: {children: children, slots: [left, right], start: leaves.state, state: state}}
  scores: {model: head, inputs: {state: nodes.root}}
outputs: {scores: scores.scores}
"""


def fault(text: bytes | str) -> str:
    with pytest.raises(PipelineInvalid) as caught:
        parse(text.encode() if isinstance(text, str) else text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def step_fault(step: str) -> str:
    return fault(f"steps: {{a: {step}}}\noutputs: {{y: a.y}}")


def test_the_cascade_of_the_issue_is_understood() -> None:
    text = parse(CASCADE)
    assert list(text.steps) == ["pixels", "small", "big"]
    assert text.steps["big"].model == "mobilenet-l:stable"
    assert text.steps["big"].when == "small.confidence < 0.8"
    assert text.outputs == {"logits": ["big.logits", "small.logits"]}


def test_the_trees_of_the_issue_are_understood() -> None:
    fold = parse(TREES).steps["nodes"].fold
    assert fold is not None
    assert fold.children == "children"
    assert fold.slots == [{"state": "left"}, {"state": "right"}]
    assert fold.state == {"state": "state"}
    assert fold.start == {"state": ["leaves.state"]}


def test_the_states_and_operations_of_a_fold_have_names() -> None:
    operation = "{model: m, slots: {count: 3, input: {h: hs, c: cs}}, state: {h: h, c: c}}"
    fold = parse(f"steps: {{a: {{fold: {{children: c, operations: [{operation}]}}}}}}\noutputs: {{y: a.y}}".encode())
    (read,) = fold.steps["a"].fold.operations  # type: ignore[union-attr]  # it is there
    assert isinstance(read.slots, StackedSlots)
    assert (read.slots.count, read.slots.input) == (3, {"h": "hs", "c": "cs"})


@pytest.mark.parametrize(
    ("fold", "want"),
    [
        ("{depth: 1}", "step 'a': fold: 'depth' is not known, only 'children', 'slots', 'state', 'start', 'types'"),
        ("{slots: []}", "step 'a': fold.slots.each: Value should have at least 1 item"),
        ("{slots: [[x]]}", "step 'a': fold.slots.each.0.state: it should be a valid string"),
        (
            "{slots: {count: 0, input: x}}",
            "step 'a': fold.slots.stacked.count: it should be greater than or equal to 1",
        ),
        (
            "{slots: {count: 65, input: x}}",
            "step 'a': fold.slots.stacked.count: it should be less than or equal to 64",
        ),
        (
            "{slots: {count: 2, name: x}}",
            "step 'a': fold.slots.stacked: 'input' is missing; step 'a': fold.slots.stacked: 'name' is not known",
        ),
        ("{state: {}}", "step 'a': fold.state: Value should have at least 1 item"),
        ("{operations: [{slots: x, state: y}]}", "step 'a': fold.operations.0: 'model' is missing"),
    ],
)
def test_a_fault_of_a_fold_is_named_with_its_place(fold: str, want: str) -> None:
    assert step_fault(f"{{fold: {fold}}}").startswith(want)


def test_what_a_step_leaves_out_has_defaults() -> None:
    step = parse(SMALLEST).steps["a"]
    assert (step.signature, step.when, step.each, step.optional, step.timeout_ms) == ("", "", [], False, None)


def test_one_source_is_a_list_of_one_and_numbers_keep_their_type() -> None:
    text = parse(b"steps: {a: {model: m, inputs: {x: x, y: [y, 1], z: [z, 1.0]}, each: x}}\noutputs: {y: a.y}")
    step = text.steps["a"]
    assert step.inputs == {"x": ["x"], "y": ["y", 1], "z": ["z", 1.0]}
    assert [type(sources[-1]) for sources in step.inputs.values()] == [str, int, float]
    assert step.each == ["x"]


@pytest.mark.parametrize(
    ("step", "want"),
    [
        ("{inputs: {x: x}}", "step 'a': it should have 'model' and 'inputs', or 'fold'"),
        ("{model: m}", "step 'a': it should have 'model' and 'inputs', or 'fold'"),
        ("{model: '', inputs: {x: x}}", "step 'a': it should have 'model' and 'inputs', or 'fold'"),
        ("{model: 5, inputs: {x: x}}", "step 'a': model: it should be a valid string"),
        ("{model: m, inputs: {}}", "step 'a': it should have 'model' and 'inputs', or 'fold'"),
        ("{model: m, inputs: [x]}", "step 'a': inputs: it should be a mapping, such as {name: value}"),
        ("{model: m, inputs: {x: []}}", "step 'a': inputs.x: Value should have at least 1 item"),
        (
            "{model: m, inputs: {x: [y, yes]}}",
            "step 'a': inputs.x.1: it should be an input of the pipeline, 'step.out",
        ),
        (
            "{model: m, inputs: {x: {y: z}}}",
            "step 'a': inputs.x.0: it should be an input of the pipeline, 'step.outp",
        ),
        (
            "{model: m, inputs: {x: }}",
            "step 'a': inputs.x.0: it should be an input of the pipeline, 'step.output' or",
        ),
        (
            "{model: m, inputs: {x: 2001-01-01}}",
            "step 'a': inputs.x.0: it should be an input of the pipeline, 'step.",
        ),
        ("{model: m, inputs: {x: x}, when: yes}", "step 'a': when: it should be a valid string"),
        ("{model: m, inputs: {x: x}, each: 5}", "step 'a': each.0: it should be a valid string"),
        ("{model: m, inputs: {x: x}, optional: maybe}", "step 'a': optional: it should be a valid boolean"),
        ("{model: m, inputs: {x: x}, timeout_ms: 0}", "step 'a': timeout_ms: it should be greater than 0"),
        ("{model: m, inputs: {x: x}, timeout_ms: .nan}", "step 'a': timeout_ms: it should be greater than 0"),
        ("{model: m, inputs: {x: x}, timeout_ms: soon}", "step 'a': timeout_ms: it should be a valid number"),
        (
            "{model: m, inputs: {x: x}, retries: 1}",
            "step 'a': 'retries' is not known, only 'model', 'signature', 'inputs'",
        ),
        ("5", "step 'a': it should be a mapping, such as"),
    ],
)
def test_a_fault_of_a_step_is_named_with_its_place_and_what_is_expected(step: str, want: str) -> None:
    assert step_fault(step).startswith(want)
    assert ";" not in step_fault(step)


@pytest.mark.parametrize("name", ["a-b", "a.b", "'1'", "''", "ä", '"a\\n"', "a b"])
def test_a_step_is_named_by_a_word(name: str) -> None:
    assert "a name here should have letters, digits and _ only" in fault(
        f"steps: {{{name}: {{model: m, inputs: {{x: x}}}}}}\noutputs: {{y: a.y}}"
    )


@pytest.mark.parametrize("name", ["str", "int", "float", "yes_"])
def test_a_step_named_as_a_type_is_named_in_its_faults(name: str) -> None:
    assert fault(f"steps: {{{name}: {{inputs: 1}}}}\noutputs: {{y: a.y}}").startswith(f"step {name!r}: inputs")


def test_all_faults_are_told_at_once() -> None:
    told = fault("steps: {a: {model: 5, inputs: {x: x}, fold: 1}}\nmodels: {}")
    assert told == (
        "step 'a': model: it should be a valid string; "
        "step 'a': fold: it should be a mapping, such as {name: value}; "
        "'outputs' is missing; 'models' is not known, only 'steps', 'outputs'"
    )


@pytest.mark.parametrize("text", ["", "# nothing", "5", "[steps, outputs]", "steps", "null", "!!set {steps, outputs}"])
def test_what_is_no_mapping_is_rejected(text: str) -> None:
    assert fault(text) == "it should have 'steps' and 'outputs'"


@pytest.mark.parametrize("name", ["on", "yes", "5", "1.5", "null", "~", "2001-01-01", "[a]", "{a: b}"])
def test_what_yaml_takes_for_another_type_is_no_name(name: str) -> None:
    told = fault(f"steps:\n  ? {name}\n  : {{model: m, inputs: {{x: x}}}}")
    assert "is no name, unless it is in quotes" in told
    assert "line 2" in told


def test_a_condition_that_needs_quotes_is_told_with_the_file() -> None:
    step = """steps: {a: {model: m, inputs: {x: x}, when: small["logits:0"] < 1}}"""
    told = fault(f"{step}\noutputs: {{y: a.y}}")
    assert told.startswith("it is no YAML: ")
    assert 'in "pipeline.yaml", line 1, column' in told
    assert told.endswith(" (in { } a text with [ ] , or : needs quotes)")
    assert "needs quotes" not in fault("a: b: c")
    quoted = step.replace("small[", "'small[").replace(" < 1", " < 1'")
    assert parse(f"{quoted}\noutputs: {{y: a.y}}".encode()).steps["a"].when == 'small["logits:0"] < 1'


def test_a_name_in_quotes_is_one() -> None:
    assert list(parse(SMALLEST.replace(b"a:", b"'on':").replace(b"a.y", b"on.y")).steps) == ["on"]


@pytest.mark.parametrize(
    "text", ["steps: 1\nsteps: 2", "steps: {a: 1, a: 1}", "steps: {a: {model: m, inputs: {x: x, x: y}}}"]
)
def test_a_name_has_one_value(text: str) -> None:
    assert "has two values in" in fault(text)


def test_aliases_by_which_a_short_text_means_a_large_one_are_rejected() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    assert "an alias (*name) is not supported" in fault(bomb)
    assert "an alias (*name) is not supported" in fault("a: &a [*a]")
    assert "an alias (*name) is not supported" in fault("a: &a {b: c}\nd: {<<: *a}")


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system [ls]", "!!python/name:os.system", "!!python/tuple [1]", "!own x", "<<: {a: b}"],
)
def test_tags_of_python_and_others_are_rejected(tag: str) -> None:
    told = fault(f"steps: {tag}" if tag[0] == "!" else f"steps: {{{tag}}}")
    assert told.startswith("it is no YAML: could not determine a constructor for the tag")


@pytest.mark.parametrize(
    "value",
    ["!!int ''", "!!bool x", "!!float ''", "!!timestamp x", "!!map ab", "!!set ab", "!!binary x", "2001-99-99", "0b_",
     "1" + ":59" * 300 + ":1.5", "9" * 5000],
    ids=lambda value: value[:14],
)  # fmt: skip
def test_values_that_are_not_of_their_tag_are_rejected(value: str) -> None:
    assert fault(f"steps: {value}").startswith("it is no YAML: ")


@pytest.mark.parametrize(
    "text", [b"\xff\xff", b"\x00", b"a: '", b"a: b: c", b"- a\nb", b"--- 1\n--- 2", b"{", b"\t- a"]
)
def test_what_is_no_yaml_is_rejected(text: bytes) -> None:
    assert fault(text).startswith("it is no YAML: ")


def test_a_text_is_as_large_as_its_limit_and_no_larger() -> None:
    assert parse(SMALLEST.ljust(MOST_BYTES))
    assert fault(SMALLEST.ljust(MOST_BYTES + 1)) == "it should have at most 65536 bytes, but has more"


def test_a_pipeline_has_a_limited_number_of_steps() -> None:
    def text(count: int) -> bytes:
        steps = "".join(f"  a{number}: {{model: m, inputs: {{x: x}}}}\n" for number in range(count))
        return f"steps:\n{steps}outputs: {{y: a0.y}}".encode()

    assert len(parse(text(MOST_STEPS)).steps) == MOST_STEPS
    assert fault(text(MOST_STEPS + 1)).startswith("steps: Dictionary should have at most 64 items")


_HOSTILE = [
    "[",
    "{a: ",
    "- ",
    "? ",
    "a: &a ",
    "!!map ",
    "'",
    "a: b, ",
    "%",
    "| ",
    "1:",
    "[]",
    "\n",
    "# ",
    "&a ",
    "*a ",
    "a:\n",
]


@pytest.mark.parametrize("part", _HOSTILE)
def test_hostile_texts_are_rejected_soon(part: str) -> None:
    """All take time that is linear in their bytes: the longest 2 s, and 5 while it is traced on a busy machine."""
    start = time.thread_time()
    fault((part * MOST_BYTES)[:MOST_BYTES])
    assert time.thread_time() - start < 30


@settings(max_examples=200)
@given(st.binary(max_size=60) | st.text(st.sampled_from("a:b {}[]-?!&*'\"\n,1.stepoutu"), max_size=60).map(str.encode))
def test_any_bytes_are_rejected_with_a_reason(text: bytes) -> None:
    assert fault(text)
