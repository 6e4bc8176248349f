"""Models of Keras of many makes: names are kept, rows are free, and answers are those of the model in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from app.importing.formats import read
from app.importing.order import ImportOrder
from tests.importing.formats import keras_zoo as zoo
from tests.importing.formats.proven import proven

_ROWS = 3


class Case(NamedTuple):
    """A maker, the library that saves it, the name of the file, and the import's inputs and outputs."""

    maker: zoo.Maker
    library: str
    file: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def _case(maker: zoo.Maker, library: str, file: str, inputs: str, outputs: str) -> Case:
    named = [dict(each.split(" ") for each in text.split("; ")) for text in (inputs, outputs)]
    return Case(maker, library, file, *named)


_TWO = "one float32[?,5]; two float32[?,3]"
_SIDES = "left float32[?,2]; right float32[?,1]"

CASES = [
    # 1. Archives of Keras 3.
    _case(zoo.mlp, "keras", "mlp.keras", "features float32[?,20]", "probabilities float32[?,3]"),
    _case(zoo.images, "keras", "images.keras", "image float32[?,12,12,1]", "scores float32[?,5]"),
    _case(zoo.mobile_images, "keras", "mobile.keras", "image float32[?,24,24,3]", "scores float32[?,5]"),
    _case(zoo.masks, "keras", "masks.keras", "image float32[?,?,?,3]", "mask float32[?,?,?,1]"),
    _case(zoo.volumes, "keras", "volumes.keras", "scan float32[?,6,6,6,1]", "dense float32[?,1]"),
    _case(zoo.series, "keras", "series.keras", "series float32[?,?,2]", "next float32[?,?,2]"),
    _case(zoo.masked_tokens, "keras", "tokens.keras", "tokens int32[?,?]", "scores float32[?,2]"),
    _case(zoo.both_ways, "keras", "both.keras", "rows float32[?,?,4]", "each float32[?,?,2]"),
    _case(zoo.attention, "keras", "attention.keras", "rows float32[?,?,8]", "scores float32[?,3]"),
    _case(zoo.two_in_two_out, "keras", "two.keras", _TWO, _SIDES),
    _case(zoo.by_keys, "keras", "keys.keras", _TWO, "price float32[?,1]; risk float32[?,2]"),
    _case(zoo.texts, "keras", "texts.keras", "text string[?]", "scores float32[?,2]"),
    _case(zoo.columns, "keras", "columns.keras", "city string[?,1]; sizes float32[?,2]", "price float32[?,1]"),
    _case(zoo.hashed, "keras", "hashed.keras", "city string[?,1]", "scores float32[?,2]"),
    _case(zoo.inner_model, "keras", "inner.keras", "rows float32[?,6]", "sum float32[?,1]"),
    _case(zoo.mixed_precision, "keras", "mixed.keras", "rows float32[?,6]", "out float32[?,3]"),
    _case(zoo.quantized, "keras", "int8.keras", "rows float32[?,16]", "out float32[?,4]"),
    _case(zoo.operations, "keras", "operations.keras", "rows float32[?,8]", "softmax float32[?,8]; sum float32[?,1]"),
    _case(zoo.one_row, "keras", "one.keras", "image float32[?,6,6,2]", "scores float32[?,2]"),
    _case(zoo.stateful, "keras", "stateful.keras", "rows float32[2,4,3]", "out float32[2,2]"),
    # 2. HDF5 files of Keras 3.
    _case(zoo.mlp, "keras", "mlp3.h5", "features float32[?,20]", "probabilities float32[?,3]"),
    _case(zoo.masks, "keras", "masks3.h5", "image float32[?,?,?,3]", "mask float32[?,?,?,1]"),
    # 3. Archives of Keras 2.
    _case(zoo.trained_mlp, "tf_keras", "trained.keras", "features float32[?,20]", "probabilities float32[?,3]"),
    _case(zoo.texts, "tf_keras", "texts2.keras", "text string[?]", "scores float32[?,2]"),
    _case(zoo.tensorflow_functions, "tf_keras", "functions.keras", "rows float32[?,16,8]", "out float32[?,16,3]"),
    # 4. HDF5 files of Keras 2.
    _case(zoo.trained_mlp, "tf_keras", "trained.h5", "features float32[?,20]", "probabilities float32[?,3]"),
    _case(zoo.without_input, "tf_keras", "built.hdf5", "dense_input float32[?,7]", "out float32[?,2]"),
    _case(zoo.masked_tokens, "tf_keras", "tokens.h5", "tokens int32[?,?]", "scores float32[?,2]"),
    _case(zoo.columns, "tf_keras", "columns.h5", "city string[?,1]; sizes float32[?,2]", "price float32[?,1]"),
    _case(zoo.two_in_two_out, "tf_keras", "two.h5", _TWO, _SIDES),
    _case(zoo.one_row, "tf_keras", "one.h5", "image float32[?,6,6,2]", "scores float32[?,2]"),
    _case(zoo.stateful, "tf_keras", "stateful.h5", "rows float32[2,4,3]", "out float32[2,2]"),
    _case(zoo.mixed_precision, "tf_keras", "mixed.h5", "rows float32[?,6]", "out float32[?,3]"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{each.library}-{each.file}" for each in CASES])
def test_a_model_keeps_its_names_and_answers(case: Case, tmp_path: Path) -> None:
    zoo.library(case.library).backend.clear_session()  # layers without a name get the same one each time
    model = zoo.made(case.maker, case.library)
    path = zoo.save(model, tmp_path / case.file)
    kind = "keras" if case.file.endswith(".keras") else "hdf5"
    source = read(kind, path, ImportOrder(str(path), "", memory_bytes=1 << 32))
    signature = proven(source, tmp_path / "1")["serving_default"]
    assert {name: str(spec) for name, spec in signature.inputs.items()} == dict(case.inputs)
    assert {name: str(spec) for name, spec in signature.outputs.items()} == dict(case.outputs)
    inputs = {name: _values(spec) for name, spec in _specs(model, case).items()}
    expected = _by_name(_called(model, inputs), case)
    actual = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"](
        **{name: tf.constant(value) for name, value in inputs.items()}
    )
    for name in case.outputs:
        np.testing.assert_allclose(actual[name].numpy(), expected[name], rtol=0, atol=1e-6)


def _specs(model: Any, case: Case) -> dict[str, tuple[tuple[int, ...], str]]:
    """By input, the shape that the model was made for, with rows, and the type."""
    shapes = dict(zip(sorted(case.inputs), model.inputs, strict=True))
    return {
        name: ((shapes[name].shape[0] or _ROWS, *shapes[name].shape[1:]), text.partition("[")[0])
        for name, text in case.inputs.items()
    }


def _values(spec: tuple[tuple[int, ...], str]) -> Any:
    shape, dtype = spec
    random = np.random.default_rng(5)
    if dtype == "string":
        return np.asarray(random.choice(["the cat", "Bonn", "0"], shape), object)
    values = random.integers(0, 9, shape) if dtype.startswith("int") else random.normal(0, 1, shape)
    return np.asarray(values, dtype)


def _called(model: Any, inputs: Mapping[str, Any]) -> Any:
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    if len(inputs) == 1:
        rows = next(iter(tensors.values()))
        if model.inputs[0].shape[0] == 1:
            return model(rows[:1], training=False)
        return model(rows, training=False)
    structured = tensors if isinstance(model.input, dict) else [tensors[name] for name in sorted(tensors)]
    return model(structured, training=False)


def _by_name(outputs: Any, case: Case) -> dict[str, Any]:
    """The outputs of a call; a list has the order of the case's outputs."""
    if isinstance(outputs, dict):
        return {name: each.numpy() for name, each in outputs.items()}
    listed = outputs if isinstance(outputs, list | tuple) else [outputs]
    return {name: each.numpy() for name, each in zip(case.outputs, listed, strict=True)}
