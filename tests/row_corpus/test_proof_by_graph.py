"""The proof by graph and real calls: nothing is proven that differs, neither of the corpus nor of the deceptions.

The proof may leave an independent function unknown, but only so many of the twins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import tensorflow as tf

from app.core.graph_rows import GraphRows, OutputRows
from app.runtime import RuntimeOptions, create_runtime
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.execution.operations import writing_operations
from app.runtimes.tensorflow.row_proof.proof import prove_rows
from tests.row_corpus.catalog import CASES, MIXING, TWINS, saved
from tests.row_corpus.deception import Deception, mixing_outputs
from tests.row_corpus.deceptions import CASES as DECEPTIONS

#: The proof knows at least so many of the twins.
KNOWN_TWINS = 55

Verdicts = Mapping[str, OutputRows]


@pytest.fixture(scope="module")
def verdicts() -> Mapping[str, Verdicts]:
    """Of each model of the corpus, as the server finds them when it loads it."""
    runtime = create_runtime("tensorflow", RuntimeOptions())
    found = {}
    for case in CASES:
        model = runtime.load(saved() / case.name / "1")
        rows = model.signatures["serving_default"].graph_rows
        found[case.name] = _whole(rows)
        model.close()
    return found


def _whole(rows: GraphRows | None) -> Verdicts:
    """A request whose inputs need not have equally many rows is one whole, whatever is said of its outputs."""
    if rows is None or rows.unequal:
        return {}
    return rows.outputs


def _proven(outputs: Verdicts) -> bool:
    return bool(outputs) and all(each.proven for each in outputs.values())


def test_no_model_whose_rows_mix_is_proven(verdicts: Mapping[str, Verdicts]) -> None:
    """Also those with values that a probe would reject: the proof needs no values."""
    assert not [each.name for each in MIXING if _proven(verdicts[each.name])]


def test_most_twins_are_proven(verdicts: Mapping[str, Verdicts]) -> None:
    left = {each.name: _reasons(verdicts[each.name]) for each in TWINS if not _proven(verdicts[each.name])}
    assert len(TWINS) - len(left) >= KNOWN_TWINS, left


def test_no_twin_is_said_to_mix(verdicts: Mapping[str, Verdicts]) -> None:
    said = {each.name: _reasons(verdicts[each.name]) for each in TWINS}
    assert not {name: reasons for name, reasons in said.items() if any("mixes" in each for each in reasons)}


def _reasons(outputs: Verdicts) -> Sequence[str]:
    return [f"{name}: {each.verdict} {each.reason}" for name, each in outputs.items() if not each.proven]


class Traced:
    """A deception's function, with the inputs as its signature has them, and what its graph says."""

    def __init__(self, deception: Deception) -> None:
        self._tracked = deception.made()  # lives as long as the function
        tracked = list(self._tracked.values())

        def call(*tensors: Any) -> Any:
            found = deception.call(*tensors, *tracked)
            return found if isinstance(found, dict) else {"y": found}

        specs = list(deception.specs)
        self._function = tf.function(call, input_signature=specs, autograph=False).get_concrete_function()
        self.structured_outputs = self._function.structured_outputs
        self.outputs = self._prove(specs)

    def __call__(self, **inputs: Any) -> Any:
        return self._function(*inputs.values())

    def _prove(self, specs: Sequence[Any]) -> Verdicts:
        function = self._function
        graph = function.graph.as_graph_def()
        shapes = {spec.name: None if spec.shape.rank is None else spec.shape.as_list() for spec in specs}
        inputs = {spec.name: tensor.name for spec, tensor in zip(specs, function.inputs, strict=False)}
        outputs = {
            name: tensor.name for name, tensor in zip(sorted(self.structured_outputs), function.outputs, strict=True)
        }
        shape_of = {id(variable.handle): variable.shape.as_list() for variable in function.graph.variables}
        held = {inner.op.name: shape_of.get(id(outer)) for outer, inner in private_api.captures(function.graph)}
        found = prove_rows(graph, inputs, outputs, shapes, writes=writing_operations(graph), variables=_known(held))
        return _whole(found)


def _known(shapes: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: shape for name, shape in shapes.items() if shape is not None}


@pytest.mark.parametrize("deception", DECEPTIONS, ids=lambda each: each.name)
def test_no_deceptive_function_is_proven_that_differs(deception: Deception) -> None:
    traced = Traced(deception)
    proven = {name for name, each in traced.outputs.items() if each.proven}
    differs = mixing_outputs(traced, deception.draw) if proven else set()
    assert not proven & differs, traced.outputs
