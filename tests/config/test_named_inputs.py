"""Whom a setting that names inputs concerns, and what is said of names that are nobody's."""

import numpy as np
import pytest

from app.config.named_inputs import of_model, warn_of_unknown
from app.core.inference import ModelSignature, TensorSpec

SPEC = TensorSpec("x", np.dtype(np.float32), (None, 2))
SIGNATURES = {"f": ModelSignature("f", {"tokens": SPEC, "mask": SPEC}, {}), "g": ModelSignature("g", {"x": SPEC}, {})}


def test_a_models_own_value_goes_before_that_of_all() -> None:
    found = of_model({"tokens": 1, "bert/tokens": 2, "other/x": 3}, "bert")
    assert found["tokens"] == 2
    assert "x" not in found


def test_an_input_that_the_model_does_not_have_is_told(caplog: pytest.LogCaptureFixture) -> None:
    values = {"bert/tokens": 1, "bert/x": 1, "tokns": 1, "other/tokns": 1}
    warn_of_unknown("pad_values", values, "bert", SIGNATURES)
    assert not caplog.messages
    warn_of_unknown("pad_values", {**values, "bert/tokns": 1}, "bert", SIGNATURES)
    assert caplog.messages == ["pad_values names bert/tokns, but the inputs of model bert are: mask, tokens, x"]
