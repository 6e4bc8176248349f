"""Sources in memory: how they are exported, and how the export is proven to be equal, by the server's own runtime."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import STRING, Array
from app.importing.example import document_of
from app.importing.export import export, renamed
from app.importing.order import CannotImport, ImportOrder
from app.importing.proof import Proof, Proven
from app.importing.source import Endpoint, Source

Tensors = Mapping[str, Any]


@pytest.fixture(scope="module")
def proof() -> Proof:
    return Proof()


def _endpoint(
    call: Callable[[Tensors], Tensors], inputs: Mapping[str, tf.TensorSpec], name: str = "serving_default", **how: Any
) -> Endpoint:
    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return {each: value.numpy() for each, value in call({n: tf.constant(a) for n, a in arrays.items()}).items()}

    return replace(Endpoint(inputs, call, run, name), **how)


def _affine(names: tuple[str, str] = ("x", "y")) -> Source:
    factor = tf.Variable([2.0, 3.0])
    one, other = names

    def call(tensors: Tensors) -> Tensors:
        return {other: tensors[one] * factor + 1.0}

    return Source("a test", [_endpoint(call, {one: tf.TensorSpec([None, 2], tf.float32)})], [factor])


def _made(call: Callable[[Tensors], Tensors], spec: tf.TensorSpec, **how: Any) -> Source:
    return Source("a test", [_endpoint(call, {"x": spec}, **how)])


def _import(proof: Proof, source: Source, folder: Path, **order: Any) -> Proven:
    export(source, folder / "1")
    return proof.of(source, folder / "1", ImportOrder("source", str(folder / "1"), **order))


def test_an_export_has_the_names_of_its_source_and_its_answers(proof: Proof, tmp_path: Path) -> None:
    proven = _import(proof, _affine(), tmp_path)
    assert (proven.result.inputs, proven.result.outputs) == ({"x": "float32[?,2]"}, {"y": "float32[?,2]"})
    assert proven.result.line("m/1", 1.25).startswith(
        "m/1: a test, input x float32[?,2], output y float32[?,2]; equal to the source on "
    )
    assert {len(call.inputs["x"]) for call in proven.calls} == {1, 3, 8}
    assert json.loads(proven.result.example) == {"instances": [[0.0, 0.0]]}
    for call in proven.calls:
        np.testing.assert_array_equal(call.outputs["y"], call.inputs["x"] * np.float32([2, 3]) + 1)


@pytest.mark.parametrize(
    "names",
    [("x:0", "y:0"), ("layer/x", "a/b/c"), ("input-1", "out-1"), ("class", "self"), ("self", "class"), ("_x", "_y")],
)
def test_names_that_python_cannot_have_are_kept(proof: Proof, tmp_path: Path, names: tuple[str, str]) -> None:
    result = _import(proof, _affine(names), tmp_path).result
    assert (list(result.inputs), list(result.outputs)) == ([names[0]], [names[1]])
    if names[0] == "class":  # TensorFlow itself reads no SavedModel with such an input
        return
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    outputs = loaded.signatures["serving_default"](tf.constant([[1.0, 2.0]]))
    assert {name: value.numpy().tolist() for name, value in outputs.items()} == {names[1]: [[3.0, 7.0]]}


def test_names_that_only_differ_where_python_sees_no_difference_are_kept(proof: Proof, tmp_path: Path) -> None:
    names = ("user.id", "user_id", "user/id", "input_0", "ein Größe")

    def call(tensors: Tensors) -> Tensors:
        return {f"of {name}": tensors[name] * (number + 1.0) for number, name in enumerate(names)}

    source = Source("a test", [_endpoint(call, {name: tf.TensorSpec([None], tf.float32) for name in names})])
    result = _import(proof, source, tmp_path).result
    assert sorted(result.inputs) == sorted(names)
    assert sorted(result.outputs) == sorted(f"of {name}" for name in names)


def test_inputs_and_outputs_get_other_names(proof: Proof, tmp_path: Path) -> None:
    result = _import(proof, renamed(_affine(), {"x": "pixels", "y": "score:0"}), tmp_path).result
    assert (list(result.inputs), list(result.outputs)) == (["pixels"], ["score:0"])


def test_wrong_new_names_are_told_with_those_that_there_are() -> None:
    with pytest.raises(CannotImport, match=r"--rename z=\.\.\.: there is no such name; there are x, y"):
        renamed(_affine(), {"z": "a"})
    specs = {name: tf.TensorSpec([None], tf.float32) for name in ("a", "b")}
    two = Source("a test", [_endpoint(lambda tensors: {"y": tensors["a"] + tensors["b"]}, specs)])
    with pytest.raises(CannotImport, match=r"--rename gives the name 'b' twice; there are a, b"):
        renamed(two, {"a": "b"})
    assert list(renamed(two, {"a": "b", "b": "a"}).endpoints[0].inputs) == ["b", "a"]


def test_names_exchange_with_their_values() -> None:
    specs = {name: tf.TensorSpec([None], tf.float32) for name in ("a", "b")}
    two = Source("a test", [_endpoint(lambda tensors: {"y": tensors["a"] - tensors["b"]}, specs)])
    (endpoint,) = renamed(two, {"a": "b", "b": "a"}).endpoints
    assert endpoint.run({"a": np.float32([1]), "b": np.float32([10])})["y"] == [9.0]


def test_several_endpoints_are_several_signatures(proof: Proof, tmp_path: Path) -> None:
    spec = {"x": tf.TensorSpec([None], tf.float32)}
    endpoints = [
        _endpoint(lambda tensors: {"y": tensors["x"] + 1.0}, spec),
        _endpoint(lambda tensors: {"y": tensors["x"] * 2.0}, spec, "double"),
    ]
    result = _import(proof, Source("a test", endpoints), tmp_path).result
    assert result.signatures == ["double", "serving_default"]
    with pytest.raises(CannotImport, match="its signatures are double"):
        export(Source("a test", endpoints[1:]), tmp_path / "2")


def test_what_is_not_used_is_not_written(tmp_path: Path) -> None:
    export(_affine(), tmp_path / "1")
    names = [name for name, _ in tf.train.list_variables(str(tmp_path / "1" / "variables" / "variables"))]
    assert [name for name in names if "CHECKPOINTABLE" not in name] == ["kept/0/.ATTRIBUTES/VARIABLE_VALUE"]


def test_files_are_copied_as_they_are(proof: Proof, tmp_path: Path) -> None:
    source = _affine()
    export(source, tmp_path / "as_it_was")
    whole = replace(source, files={each.name: each for each in (tmp_path / "as_it_was").iterdir()})
    assert _import(proof, whole, tmp_path).result.outputs == {"y": "float32[?,2]"}
    assert (tmp_path / "1" / "saved_model.pb").read_bytes() == (tmp_path / "as_it_was" / "saved_model.pb").read_bytes()
    with pytest.raises(CannotImport, match="--rename changes names of an export"):
        renamed(whole, {"x": "z"})


def test_an_export_that_answers_otherwise_is_rejected_with_how_far(proof: Proof, tmp_path: Path) -> None:
    source = _affine()
    (endpoint,) = source.endpoints

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        outputs = dict(endpoint.run(arrays))
        outputs["y"] = outputs["y"].copy()
        outputs["y"][-1, 0] += 0.5
        return outputs

    with pytest.raises(CannotImport) as caught:
        _import(proof, replace(source, endpoints=[replace(endpoint, run=run)]), tmp_path)
    assert re.fullmatch(
        r"the import does not answer as the source: output 'y' differs at \[2, 0\], in row 2: the source gives "
        r"[\d.]+, the export [\d.]+ \(x of shape \[3, 2\]\)",
        str(caught.value),
    )


def test_inputs_that_both_reject_prove_nothing_and_are_no_difference(proof: Proof, tmp_path: Path) -> None:
    def call(tensors: Tensors) -> Tensors:
        with tf.control_dependencies([tf.debugging.assert_less(tf.shape(tensors["x"])[1], 30)]):
            return {"y": tf.reduce_sum(tensors["x"], 1)}

    source = _made(call, tf.TensorSpec([None, None], tf.float32))
    calls = _import(proof, source, tmp_path).calls
    assert calls
    assert all(call.inputs["x"].shape[1] < 30 for call in calls)


def _picky(tensors: Tensors) -> Tensors:
    """Takes 1234.5 alone."""
    third = tf.round(tensors["x"] * 6.0) / 2.0
    with tf.control_dependencies([tf.debugging.assert_equal(third, 3703.5, "only 1234.5 is taken")]):
        return {"y": tensors["x"] * 2.0}


def test_without_inputs_that_the_source_accepts_there_is_no_import(proof: Proof, tmp_path: Path) -> None:
    source = _made(_picky, tf.TensorSpec([None], tf.float32))
    told = r"nothing could be proven of signature 'serving_default': .*only 1234\.5 is taken.*--samples FILE gives"
    with pytest.raises(CannotImport, match=told):
        _import(proof, source, tmp_path)


def test_samples_prove_where_made_up_inputs_do_not(proof: Proof, tmp_path: Path) -> None:
    (tmp_path / "samples.json").write_text('{"instances": [1234.5, 1234.5]}')
    source = _made(_picky, tf.TensorSpec([None], tf.float32))
    proven = _import(proof, source, tmp_path, samples=str(tmp_path / "samples.json"))
    assert [call.inputs["x"].tolist() for call in proven.calls] == [[1234.5, 1234.5]]
    assert json.loads(proven.result.example) == {"instances": [1234.5]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"instances": [1.0]}', r"--samples: the source rejects these inputs: .*only 1234\.5 is taken"),
        ('{"instances": ["a"]}', r"--samples .*samples\.json: .*expected"),
        ("{", r"--samples .*samples\.json: "),
    ],
)
def test_samples_that_do_not_fit_are_told(proof: Proof, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "samples.json").write_text(text)
    source = _made(_picky, tf.TensorSpec([None], tf.float32))
    with pytest.raises(CannotImport, match=told):
        _import(proof, source, tmp_path, samples=str(tmp_path / "samples.json"))


def test_an_export_that_rejects_what_the_source_answers_is_rejected(proof: Proof, tmp_path: Path) -> None:
    source = _made(_picky, tf.TensorSpec([None], tf.float32))
    source = replace(source, endpoints=[replace(source.endpoints[0], run=lambda arrays: {"y": arrays["x"] * 2})])
    with pytest.raises(CannotImport, match=r"the import rejects inputs that the source answers \(x of shape \[3\]\)"):
        _import(proof, source, tmp_path)


def test_models_that_draw_are_compared_by_structure(proof: Proof, tmp_path: Path) -> None:
    source = _made(
        lambda tensors: {"y": tensors["x"] + tf.random.normal(tf.shape(tensors["x"]))},
        tf.TensorSpec([None], tf.float32),
    )
    result = _import(proof, source, tmp_path).result
    assert result.notes == ["signature 'serving_default' draws random numbers: names, types and shapes were compared"]


def test_what_the_operation_check_forbids_is_not_imported(proof: Proof, tmp_path: Path) -> None:
    source = _made(
        lambda tensors: {"y": tf.io.read_file(tensors["x"][0]) + tensors["x"]}, tf.TensorSpec([None], tf.string)
    )
    with pytest.raises(CannotImport, match=r"the import cannot be served: .*ReadFile"):
        _import(proof, source, tmp_path)


def test_tables_are_tried_with_their_own_words(proof: Proof, tmp_path: Path) -> None:
    keys = tf.constant(["red", "green", "blue"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([3, 5, 7], tf.int64)), -1)
    source = _made(lambda tensors: {"y": table.lookup(tensors["x"])}, tf.TensorSpec([None], tf.string))
    proven = _import(proof, replace(source, kept=[table]), tmp_path)
    assert {3, 5, 7} <= {value for call in proven.calls for value in call.outputs["y"].tolist()}


def test_usual_sizes_are_tried_first_where_sizes_are_free(proof: Proof, tmp_path: Path) -> None:
    spec = tf.TensorSpec([None, None, None, 3], tf.float32)
    source = _made(lambda tensors: {"y": tf.reduce_mean(tensors["x"], [1, 2])}, spec, usual={"x": (None, 20, 30, 3)})
    calls = _import(proof, source, tmp_path).calls
    assert calls[0].inputs["x"].shape == (3, 20, 30, 3)


def test_an_example_is_a_document_that_is_answered(proof: Proof, tmp_path: Path) -> None:
    specs = {"text": tf.TensorSpec([None], tf.string), "n": tf.TensorSpec([None, 2], tf.int32)}

    def call(tensors: Tensors) -> Tensors:
        return {"y": tf.strings.length(tensors["text"]) + tf.reduce_sum(tensors["n"], 1)}

    result = _import(proof, Source("a test", [_endpoint(call, specs)]), tmp_path).result
    assert json.loads(result.example) == {"instances": [{"n": [0, 0], "text": ""}]}


def test_a_document_holds_any_type(proof: Proof, tmp_path: Path) -> None:
    specs = {"raw": tf.TensorSpec([], tf.string), "half": tf.TensorSpec([2], tf.bfloat16)}

    def call(tensors: Tensors) -> Tensors:
        return {"y": tf.strings.length(tensors["raw"]), "z": tensors["half"]}

    export(Source("a test", [_endpoint(call, specs)]), tmp_path / "1")
    model = proof._runtime.load(tmp_path / "1")
    signature = model.signatures["serving_default"]
    model.close()
    inputs = {"raw": np.array(b"\xff", STRING), "half": np.array([1, 2], specs["half"].dtype.as_numpy_dtype)}
    assert document_of(signature, inputs) == {"inputs": {"raw": {"b64": "/w=="}, "half": [1.0, 2.0]}}
