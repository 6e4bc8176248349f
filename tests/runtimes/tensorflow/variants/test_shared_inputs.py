"""Variants of a signature with inputs that are no rows: tried at the batch sizes used, and right for other values.

The oracle is the SavedModel's own graph.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import ModelSignature, TensorSpec
from app.core.time_budget import TimeBudget
from app.runtime import VariantOptions
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.variants.unusual_values import examples_of, in_batches, place
from tests.support.models import unequal_savedmodels

SIZES = (1, 2, 4)
VALUES = (1.0, 2.5, -0.5, 1e30, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("variant", ["frozen", "xla"])
def test_a_variant_is_used_at_every_batch_size_for_all_shared_values(tmp_path: Path, variant: str) -> None:
    unequal_savedmodels.make_temperature(tmp_path / "m" / "1")
    model = SavedModel(tmp_path / "m" / "1", VariantOptions(variant))
    choices = model.tune(SIZES, lambda *_: None, TimeBudget(inf))
    assert {choice.batch_size: choice.variant for choice in choices} == dict.fromkeys(SIZES, variant)
    random = np.random.default_rng(1)
    for rows in (*SIZES, 3):
        for value in VALUES:
            inputs = {"x": random.normal(size=(rows, 4)).astype(np.float32), "temperature": np.float32(value)}
            inputs["temperature"] = np.asarray(inputs["temperature"])
            got, want = model.run("serving_default", inputs, ()), model.run_plain("serving_default", inputs, ())
            for name, array in want.items():
                np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6, err_msg=f"{rows} rows, {value}")
    model.close()


def test_an_unusual_value_of_a_shared_input_is_a_call_of_its_own() -> None:
    number = np.dtype(np.float32)
    inputs = {"x": TensorSpec("x", number, (None, 2)), "t": TensorSpec("t", number, ())}
    outputs = {"y": TensorSpec("y", number, (None, 2))}
    rows = GraphRows({"y": OutputRows("proven")}, frozenset({"x"}), frozenset({"t"}))
    signature = ModelSignature("s", inputs, outputs, graph_rows=rows)
    ordinary = {"x": np.full((4, 2), 0.5, number), "t": np.asarray(np.float32(0.5))}
    examples = examples_of(signature, ordinary)
    assert {name for each in examples for name in each.makers} == {"x", "t"}
    batches = in_batches(signature, examples, 4)
    assert sorted(map(str, examples)) == sorted(str(each) for batch in batches for each in batch)
    for batch in batches:
        values = place(batch, ordinary, signature)
        assert (values["x"].shape, values["t"].shape) == ((4, 2), ())
        if len(batch) > 1:
            assert values["t"] == 0.5
        elif "t" in batch[0].makers:
            assert values["t"] != 0.5
