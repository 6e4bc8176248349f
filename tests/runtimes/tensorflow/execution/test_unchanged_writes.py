"""A graph that assigns what it read writes nothing; one that may change a variable does."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from app.runtimes.tensorflow.execution.unchanged_writes import changes_nothing
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from tests.runtimes.tensorflow.stablehlo.stablehlo_models import COUNTED, KEPT, make_module, save


def proven(module: tf.Module) -> bool:
    graph = module.call.get_concrete_function().graph.as_graph_def()
    return changes_nothing(graph, ["AssignVariableOp"])


def test_a_state_that_the_module_gives_back_as_it_was_is_no_write() -> None:
    assert proven(make_module(KEPT))


def test_a_state_that_the_module_computes_is_a_write() -> None:
    assert not proven(make_module(COUNTED))


def test_the_value_of_one_variable_assigned_to_another_is_a_write() -> None:
    assert not proven(make_module(KEPT, to_another=True))


def test_other_operations_that_write_count() -> None:
    graph = make_module(KEPT).call.get_concrete_function().graph.as_graph_def()
    assert not changes_nothing(graph, ["AssignAddVariableOp", "AssignVariableOp"])


def test_a_loaded_signature_that_keeps_its_state_does_not_write_and_answers_alike(tmp_path: Path) -> None:
    model = SavedModel(save(tmp_path / "1", make_module(KEPT)))
    assert model.signatures["serving_default"].writes == ()
    assert model.why_one_replica() == ""
    x = np.array([[1, 2], [3, 4]], np.float32)
    for _ in range(2):
        assert model.run("serving_default", {"x": x}, ())["y"].tolist() == (x + x).tolist()


def test_a_signature_counts_as_writing_beside_one_that_changes_state(tmp_path: Path) -> None:
    model = SavedModel(save(tmp_path / "1", make_module(KEPT), changing=make_module(COUNTED)))
    assert {each.writes for each in model.signatures.values()} == {("AssignVariableOp",)}
