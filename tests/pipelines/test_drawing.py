"""Drawings of pipelines. Lanes are followed from row to row; the oracle is what the text of the pipeline says."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.inference import Dimension, ModelSignature, TensorSpec
from app.pipelines.compilation import compile_pipeline
from app.pipelines.document import parse
from app.pipelines.drawing import ASCII, describe, dot, draw, printable
from app.pipelines.plan import Plan
from app.pipelines.references import ModelReference

FLOAT32, INT32 = np.dtype(np.float32), np.dtype(np.int32)


def model(inputs: Mapping[str, Sequence[Dimension]], outputs: Mapping[str, Sequence[Dimension]]) -> ModelSignature:
    def specs(shapes: Mapping[str, Sequence[Dimension]]) -> dict[str, TensorSpec]:
        return {name: TensorSpec(name, FLOAT32, (None, *shape)) for name, shape in shapes.items()}

    return ModelSignature("serving_default", specs(inputs), specs(outputs))


MODELS = {
    "small": model({"x": [2]}, {"y": [2], "score": []}),
    "big": model({"x": [2]}, {"y": [2]}),
    "detect": model({"x": [2]}, {"boxes": [None, 2]}),
    "pair": model({"a": [2], "b": [2]}, {"y": [2], 'odd "\\\x1b\nname': [2]}),
    "join": model({"word": [], "l_h": [3], "l_c": [], "r_h": [3], "r_c": []}, {"h": [3], "c": []}),
    "turn": model({"word": [], "p": [3], "q": []}, {"h": [3], "c": [], "mark": []}),
    "add": model({"all": [None, 3]}, {"sum": [3]}),
}


def compiled(text: str) -> Plan:
    def find(reference: ModelReference) -> Mapping[str, ModelSignature]:
        signature = MODELS[reference.name]
        return {"serving_default": signature, "other": ModelSignature("other", signature.inputs, signature.outputs)}

    return compile_pipeline(parse(text.encode()), find)


CASCADE = """
steps:
  small: {model: small, inputs: {x: x}}
  big:
    {model: "big:stable", signature: other, inputs: {x: x}, when: "(small.score\\n <  2)", optional: yes, timeout_ms: 9}
outputs: {y: [big.y, small.y], score: [small.score, 0.5]}
"""

TREES = """
steps:
  nodes:
    inputs: {word: words}
    fold:
      children: children
      types: types
      shared: true
      start: {h: h, c: c}
      operations:
        - {model: join, slots: [{h: l_h, c: l_c}, {h: r_h, c: r_c}], state: {h: h, c: c}}
        - {model: turn, signature: other, slots: [{h: p, c: q}], state: {h: h, c: c}}
outputs: {root: nodes.root_h, states: nodes.c}
"""


def test_a_cascade() -> None:
    assert draw(compiled(CASCADE)).splitlines() == [
        "○     x",
        "├▶●   small = small",
        "│ │     x ← x",
        "●◀┤   big = big:stable (other)",
        "│ │     x ← x",
        "│ │     when (small.score < 2)",
        "│ │     optional, waited for 9 ms at most",
        "■◀┤   y ← big.y, else small.y",
        "  ■   score ← small.score, else 0.5",
    ]


def test_elements_are_steps_of_their_own() -> None:
    text = "steps: {a: {model: detect, inputs: {x: x}}, b: {model: big, inputs: {x: a.boxes}, each: x}}\n"
    assert draw(compiled(text + "outputs: {y: b.y}")).splitlines() == [
        "○   x",
        "●   a = detect",
        "│     x ← x",
        "●   b = big",
        "│     x ← each of a.boxes",
        "■   y ← b.y",
    ]


def test_a_fold_shows_its_operations_slots_and_states() -> None:
    assert draw(compiled(TREES)).splitlines() == [
        "○           children",
        "│ ○         types",
        "│ │ ○       h",
        "│ │ │ ○     c",
        "│ │ │ │ ○   words",
        "●◀┴─┴─┴─┘   nodes = fold by join, turn (other)",
        "│             children ← children: 2 slots for each node, which nodes may share",
        "│             types ← types: 2 types of nodes",
        "│             state h of start nodes ← h",
        "│             state c of start nodes ← c",
        "│             word of each node ← words",
        "│             state h: float32[3]",
        "│             state c: float32[]",
        "│             type 0: join",
        "│               l_h ← state h of slot 0",
        "│               l_c ← state c of slot 0",
        "│               r_h ← state h of slot 1",
        "│               r_c ← state c of slot 1",
        "│               word ← word of the node",
        "│               h → state h",
        "│               c → state c",
        "│             type 1: turn (other)",
        "│               p ← state h of slot 0",
        "│               q ← state c of slot 0",
        "│               word ← word of the node",
        "│               h → state h",
        "│               c → state c",
        "│             gives root_h of each root, c of each node",
        "├▶■         root ← nodes.root_h",
        "■           states ← nodes.c",
    ]


def test_a_fold_with_one_state_and_stacked_slots_and_a_chain() -> None:
    fold = "{children: kids, slots: {count: 4, input: all}, start: start, state: sum}"
    stacked = draw(compiled(f"steps: {{n: {{model: add, fold: {fold}}}}}\noutputs: {{y: n.root}}")).splitlines()
    assert "│       all ← state of all 4 slots" in stacked
    assert "│       state of start nodes ← start" in stacked
    assert "│       sum → state" in stacked
    chain = "{slots: [{h: p, c: q}], state: {h: h, c: c}}"
    text = f"steps: {{n: {{model: turn, inputs: {{word: words}}, fold: {chain}}}}}\noutputs: {{y: n.mark}}"
    assert "│     a chain: the child of each node is the one before it" in draw(compiled(text)).splitlines()


def test_inputs_and_outputs_have_types_and_shapes() -> None:
    assert describe(compiled(CASCADE)).splitlines() == [
        "in  x      float32[?,2]",
        "out y      float32[?,2]",
        "out score  float32[?]",
    ]
    assert describe(compiled(TREES)).splitlines() == [
        "in  h         float32[?,3]",
        "in  c         float32[?]",
        "in  children  int32[?,2]",
        "in  types     int32[?]",
        "in  words     float32[?]",
        "out root      float32[?,3]",
        "out states    float32[?]",
        "    children and types and words have equally many rows",
        "    h and c have equally many rows",
    ]


def test_a_terminal_may_know_only_ascii() -> None:
    assert draw(compiled(CASCADE)).translate(ASCII).splitlines()[:5] == [
        "o     x",
        "+>*   small = small",
        "| |     x <- x",
        "*<+   big = big:stable (other)",
        "| |     x <- x",
    ]
    assert draw(compiled(TREES)).translate(ASCII).isascii()


# --- lanes ---

SYMBOLS, JOINTS, ENDS = "○●■", "├┤┼└┘┴", "└┘┴"


def read_back(drawing: str) -> dict[str, set[str]]:
    """By the name of a step or output, the names of what its lanes lead to."""
    lanes: dict[int, str] = {}
    found = {}
    for line in drawing.splitlines():
        own = next((column for column, letter in enumerate(line) if letter in SYMBOLS), None)
        if own is None:  # below a node all lanes are drawn, and nothing else
            assert {column for column, letter in enumerate(line) if letter == "│"} == lanes.keys()
            continue
        name = re.split(r" [=←] ", line.lstrip("".join(SYMBOLS + JOINTS) + " │─▶◀"))[0]
        read = {lanes[column] for column, letter in enumerate(line) if letter in JOINTS}
        if own in lanes:
            read.add(lanes[own])
        found[name] = read
        lanes = {column: source for column, source in lanes.items() if line[column] not in ENDS}
        lanes[own] = name
        if line[own] == "■":
            del lanes[own]
        assert lanes.keys() - {own} == {column for column, letter in enumerate(line) if letter in "│├┤┼"}
    assert not lanes, "all is read at last"
    return found


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int, int]]:
    """For each step the two sources of its inputs: a step before it, or one of three inputs (-1, -2, -3)."""
    return [
        (draw(st.integers(-3, number - 1)), draw(st.integers(-3, number - 1)))
        for number in range(draw(st.integers(1, 30)))
    ]


@pytest.mark.not_traced  # the documents of 200 graphs are read by a library in Python
@settings(max_examples=200, deadline=None)
@given(graphs())
def test_each_lane_leads_from_a_source_to_all_that_read_it(graph: list[tuple[int, int]]) -> None:
    names = [[f"s{each}" if each >= 0 else f"i{-each}" for each in pair] for pair in graph]
    unused = {f"s{number}" for number in range(len(graph))} - {name for pair in names for name in pair}
    sources = [[f"{each}.y" if each[0] == "s" else each for each in pair] for pair in names]
    steps = [f"  s{number}: {{model: pair, inputs: {{a: {a}, b: {b}}}}}" for number, (a, b) in enumerate(sources)]
    outputs = {f"o_{name}": {name} for name in sorted(unused)}
    text = "\n".join(["steps:", *steps, "outputs:", *[f"  o_{name}: {name}.y" for name in sorted(unused)]])
    want = {f"s{number}": set(pair) for number, pair in enumerate(names)} | outputs
    want |= {name: set() for pair in names for name in pair if name[0] == "i"}
    assert read_back(draw(compiled(text))) == want


# --- DOT, and names that are no words ---


def test_dot() -> None:
    assert dot({"read version 3": compiled(CASCADE)}).splitlines() == [
        "digraph pipelines {",
        "  node [shape=box];",
        "  subgraph cluster_0 {",
        '    label="read version 3";',
        '    p0_0 [label="x", shape=ellipse];',
        '    p0_1 [label="small = small"];',
        '    p0_2 [label="big = big:stable (other)\\lwhen (small.score < 2)\\loptional, waited for 9 ms at most\\l"];',
        '    p0_3 [label="y", shape=ellipse];',
        '    p0_4 [label="score", shape=ellipse];',
        '    p0_0 -> p0_1 [label="x → x"];',
        '    p0_0 -> p0_2 [label="x → x"];',
        '    p0_1 -> p0_2 [label="when score", style=dashed];',
        '    p0_2 -> p0_3 [label="y → y"];',
        '    p0_1 -> p0_3 [label="y → y"];',
        '    p0_1 -> p0_4 [label="score → score"];',
        "  }",
        "}",
    ]


def test_names_of_any_letters_do_no_harm() -> None:
    odd = '"odd \\"\\\\\\e\\nname"'
    reference = '"a.odd \\"\\\\\\e\\nname"'
    plan = compiled(f"steps: {{a: {{model: pair, inputs: {{a: x, b: x}}}}}}\noutputs: {{{odd}: {reference}}}")
    lines = draw(plan).splitlines()
    assert len(lines) == 5
    assert lines[-1] == '■   odd "\\\x1b\nname ← a.odd "\\\x1b\nname'.replace("\x1b", "\\x1b").replace("\n", "\\n")
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', dot({'"\n': plan}))
    assert all(each.isprintable() for each in strings)
    assert strings[0] == '\\"\\\\n'
    assert 'odd \\"\\\\\\\\x1b\\\\nname' in strings
    assert printable("a\u202eb\udcff\x07") == "a\\u202eb\\udcff\\x07"
