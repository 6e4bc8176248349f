from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import msgpack
import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.events import ignore
from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.interfaces import ServedModel
from app.core.versions import VersionState
from app.frontends.channel.catalog_snapshot import CatalogSnapshot, describe, read_description, take_snapshot
from app.frontends.frontend.remote_repository import RemoteRepository
from app.repository.catalog import Catalog
from app.repository.servable import Servable


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
    found = read_description(describe(model_of(signature)))[1]["s"].defaults["x"]
    assert (found.dtype, found.shape, found.tolist()) == (value.dtype, value.shape, value.tolist())


def test_frontends_know_pipelines_and_those_whose_rows_are_of_several_kinds() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    model = model_of(ModelSignature("s", {"x": spec}, {"y": spec}, mixed_rows=True), pipeline=True)
    _, signatures, pipeline = read_description(describe(model))
    assert pipeline
    assert not signatures["s"].batchable


@pytest.mark.parametrize(
    ("shared", "unequal", "batchable"), [((), False, True), (("x",), False, False), ((), True, False)]
)
def test_frontends_know_what_the_graph_says_of_rows(shared: tuple[str, ...], unequal: bool, batchable: bool) -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    found = {"y": OutputRows("mixes", "Sum 'total' adds rows")}
    known = GraphRows(found, frozenset({"z"}), frozenset(shared), unequal)
    signature = ModelSignature("s", {"x": spec, "z": spec}, {"y": spec}, graph_rows=known, most_rows=16)
    read = read_description(describe(model_of(signature)))[1]["s"]
    assert (read.graph_rows, read.most_rows, read.batchable) == (known, 16, batchable)


def test_a_model_that_has_not_changed_is_described_by_equal_bytes() -> None:
    """Descriptions are compared several times a second, and a frontend makes signatures anew where they differ."""
    spec = TensorSpec("x", np.dtype(ml_dtypes.bfloat16), (None,))
    signature = ModelSignature("s", {"x": spec}, {"y": spec}, ragged={"x": ("n",)}, alone={"y": "mixes"})
    model = model_of(signature)
    first = describe(model)
    read = read_description(first)[1]["s"]
    assert [getattr(read, each.name) for each in fields(read)] == [
        getattr(signature, each.name) for each in fields(read)
    ]
    assert describe(model) == first


def test_frontends_know_which_pipelines_answer_no_requests() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    pipeline = cast(Any, model_of(ModelSignature("s", {"x": spec}, {"y": spec}), pipeline=True))
    pipeline.name, pipeline.missing, pipeline.pads = "p", "waits for the model small", lambda signature: False
    pipeline.note = ""
    catalog, frontend = Catalog(), RemoteRepository(cast(Any, None))
    servable = catalog.models["p"] = {1: Servable("p", 1, ignore)}
    servable[1].state, servable[1].model = VersionState.AVAILABLE, pipeline

    def mirror() -> str:
        snapshot = take_snapshot(catalog, ("p",), lambda model: 7, lambda name: False)
        sent = msgpack.unpackb(msgpack.packb(snapshot), use_list=False, strict_map_key=False)
        frontend.apply(cast(Any, None), CatalogSnapshot(*sent))
        return frontend.resolve("p").missing

    assert mirror() == "waits for the model small"
    pipeline.missing = ""
    assert not mirror()


def test_frontends_know_how_a_version_was_loaded() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    model = cast(Any, model_of(ModelSignature("s", {"x": spec}, {"y": spec})))
    model.name, model.missing, model.pads, model.note = "m", "", lambda signature: False, "it runs in a session"
    catalog, frontend = Catalog(), RemoteRepository(cast(Any, None))
    catalog.models["m"] = {1: Servable("m", 1, ignore)}
    catalog.models["m"][1].state, catalog.models["m"][1].model = VersionState.AVAILABLE, model
    snapshot = take_snapshot(catalog, ("m",), lambda model: 7, lambda name: False)
    sent = msgpack.unpackb(msgpack.packb(snapshot), use_list=False, strict_map_key=False)
    frontend.apply(cast(Any, None), CatalogSnapshot(*sent))
    assert frontend.statuses("m") == catalog.statuses("m")
    assert [each.note for each in frontend.statuses("m")] == ["it runs in a session"]
