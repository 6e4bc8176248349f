from types import SimpleNamespace
from typing import cast

import ml_dtypes
import msgpack
import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.interfaces import ServedModel
from app.frontends.channel.catalog_snapshot import _description, read_description


def model_of(signature: ModelSignature, *, pipeline: bool = False) -> ServedModel:
    model = SimpleNamespace(sizes=BatchSizes((1,)), signatures={"s": signature}, pipeline=pipeline)
    return cast(ServedModel, model)


@pytest.mark.parametrize(
    "value",
    [
        np.array([[1.5, -2.0]], np.float32),
        np.array(7, np.int64),
        np.zeros((0, 3), np.float64),
        np.array([b"a", b"\x00\xff"], STRING),
        np.array([1.5], ml_dtypes.bfloat16),
    ],
    ids=["numbers", "a scalar", "nothing", "strings", "bfloat16"],
)
def test_default_values_reach_the_frontends(value: Array) -> None:
    spec = TensorSpec("x", value.dtype, None)
    signature = ModelSignature("s", {"x": spec}, {"y": spec}, defaults={"x": value})
    described = _description(model_of(signature))
    sent = msgpack.unpackb(msgpack.packb(described), use_list=False, strict_map_key=False)
    found = read_description(sent)[1]["s"].defaults["x"]
    assert (found.dtype, found.shape, found.tolist()) == (value.dtype, value.shape, value.tolist())


def test_frontends_know_pipelines_and_those_whose_rows_are_of_several_kinds() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    described = _description(model_of(ModelSignature("s", {"x": spec}, {"y": spec}, mixed_rows=True), pipeline=True))
    sent = msgpack.unpackb(msgpack.packb(described), use_list=False, strict_map_key=False)
    _, signatures, pipeline = read_description(sent)
    assert pipeline
    assert not signatures["s"].batchable
