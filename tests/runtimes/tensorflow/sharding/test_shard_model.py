"""`ferry shard` on real models, in a process that has two CPUs; the oracle is the original model (on_two_cpus.py)."""

import json
from typing import Any

import pytest

from tests.support.forks.programs import run_program

COLUMNS, ROWS = "columns", "rows"

#: By model, how its layers are split, in the order in which they are computed.
SPLIT = {
    "pair": [COLUMNS, ROWS],
    "transposed": [COLUMNS, ROWS],
    "normalized_between": [COLUMNS, COLUMNS],
    "residual": [COLUMNS, COLUMNS, ROWS],
    "gated": [COLUMNS, COLUMNS, ROWS],
    "constant": [COLUMNS, ROWS],
    "checked": [COLUMNS, ROWS],
    "with_table": [COLUMNS],
    "of_keras": [COLUMNS, ROWS, COLUMNS],
    "sequences_of_keras": [COLUMNS, COLUMNS],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    done = run_program("-m", "tests.runtimes.tensorflow.sharding.on_two_cpus", str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("name", [*SPLIT, "shared_weights"])
def test_the_split_model_answers_as_the_original(found: dict[str, Any], name: str) -> None:
    assert found["split"][name]["apart"] < 1e-5


@pytest.mark.parametrize("name", SPLIT)
def test_layers_are_split_by_columns_and_by_rows_where_columns_come_in(found: dict[str, Any], name: str) -> None:
    assert [by for _, by in found["split"][name]["layers"]] == SPLIT[name]


@pytest.mark.parametrize("name", SPLIT)
def test_each_device_computes_as_many_products(found: dict[str, Any], name: str) -> None:
    products = found["split"][name]["computed on"]
    assert products["CPU:0"] == products["CPU:1"] > 0


def test_variables_lie_on_their_devices_and_nothing_is_left_of_the_whole_ones(found: dict[str, Any]) -> None:
    first = [[8], [12, 16], [16], [16, 8]]
    second = [[12, 15], [15], [15, 8]]
    expected = [*([shape, "CPU:0"] for shape in first), *([shape, "CPU:1"] for shape in second)]
    assert found["split"]["pair"]["variables"] == sorted(expected)


def test_layers_that_share_weights_share_their_parts(found: dict[str, Any]) -> None:
    shared = found["split"]["shared_weights"]
    assert sorted(by for _, by in shared["layers"]) == [COLUMNS, COLUMNS, COLUMNS, ROWS]
    by_columns, by_rows = [[12, 6], [12, 6]], [[6, 12], [6, 12]]
    assert [shape for shape, _ in shared["variables"]] == [*by_rows, *by_columns]


def test_what_checks_the_inputs_still_does(found: dict[str, Any]) -> None:
    assert "x must be below 9" in found["split"]["checked"]["rejects"]


REFUSED = {
    "convolution": "it has no dense layer (MatMul of a matrix of weights) of at least 0 MB to split over 2 devices",
    "drawing": "it writes state or draws random numbers: RandomStandardNormal; expected neither",
    "broken": "cannot be split: Error parsing message",
    "make_counter": "it writes state or draws random numbers: AssignAddVariableOp; expected neither",
    "make_on_a_gpu": "its graph names devices already: GPU:0; expected none",
    "make_with_defaults": "its signature has ragged or sparse tensors, or default values; expected dense ones without",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_split_is_refused_with_the_reason(found: dict[str, Any], name: str) -> None:
    assert REFUSED[name] in found["refused"][name]


def test_wrong_wishes_are_refused_and_nothing_is_left_behind(found: dict[str, Any]) -> None:
    assert found["more devices"] == "--devices is 3, but TensorFlow sees 2 of kind CPU; expected at most that"
    assert found["signature"] == "it has no signature 'other'; expected one of 'serving_default'"
    assert found["exists"].endswith("pair exists already; expected a folder that does not")
    assert "at least 1 MB" in found["large"]
    assert found["left"] == []
