import pickle
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.events import ignore
from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.interfaces import ServedModel
from app.core.versions import ModelProblem, ProblemKind, VersionState, VersionStatus
from app.frontends.channel.catalog_snapshot import CatalogSnapshot, take_snapshot
from app.frontends.frontend.remote_repository import RemoteRepository
from app.repository.catalog import Catalog
from app.repository.servable import Servable


def model_of(signature: ModelSignature, *, pipeline: bool = False) -> ServedModel:
    model = SimpleNamespace(
        name="m", sizes=BatchSizes((1,)), signatures={"s": signature}, pipeline=pipeline, missing="", note=""
    )
    model.pads = lambda _: False
    return cast(ServedModel, model)


def snapshot_of(model: ServedModel) -> CatalogSnapshot:
    catalog = Catalog()
    catalog.models["m"] = {1: Servable("m", 1, ignore)}
    catalog.models["m"][1].state, catalog.models["m"][1].model = VersionState.AVAILABLE, cast(Any, model)
    return take_snapshot(catalog, ("m",), lambda model: 7, lambda name: False)


def mirrored(snapshot: CatalogSnapshot, frontend: RemoteRepository | None = None) -> RemoteRepository:
    """What a frontend knows that gets the snapshot."""
    frontend = frontend or RemoteRepository(cast(Any, None))
    frontend.apply(cast(Any, None), pickle.loads(pickle.dumps(snapshot)))  # noqa: S301 - from Ferry
    return frontend


def described(model: ServedModel) -> ServedModel:
    return mirrored(snapshot_of(model)).resolve("m")


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
    found = described(model_of(signature)).signatures["s"].defaults["x"]
    assert (found.dtype, found.shape, found.tolist()) == (value.dtype, value.shape, value.tolist())


def test_frontends_know_pipelines_and_those_whose_rows_are_of_several_kinds() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    model = model_of(ModelSignature("s", {"x": spec}, {"y": spec}, mixed_rows=True), pipeline=True)
    assert described(model).pipeline
    assert not described(model).signatures["s"].batchable


@pytest.mark.parametrize(
    ("shared", "unequal", "batchable"), [((), False, True), (("x",), False, False), ((), True, False)]
)
def test_frontends_know_what_the_graph_says_of_rows(shared: tuple[str, ...], unequal: bool, batchable: bool) -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    found = {"y": OutputRows("mixes", "Sum 'total' adds rows")}
    known = GraphRows(found, frozenset({"z"}), frozenset(shared), unequal)
    signature = ModelSignature("s", {"x": spec, "z": spec}, {"y": spec}, graph_rows=known, most_rows=16)
    read = described(model_of(signature)).signatures["s"]
    assert (read.graph_rows, read.most_rows, read.batchable) == (known, 16, batchable)


def test_a_model_that_has_not_changed_is_described_by_equal_bytes() -> None:
    """Descriptions are compared several times a second, and a frontend makes signatures anew where they differ."""
    spec = TensorSpec("x", np.dtype(ml_dtypes.bfloat16), (None,))
    signature = ModelSignature("s", {"x": spec}, {"y": spec}, ragged={"x": ("n",)}, alone={"y": "mixes"})
    model = model_of(signature)
    read = described(model).signatures["s"]
    assert [getattr(read, each.name) for each in fields(read)] == [
        getattr(signature, each.name) for each in fields(read)
    ]
    assert snapshot_of(model) == snapshot_of(model)


def test_frontends_know_which_pipelines_answer_no_requests() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    pipeline = cast(Any, model_of(ModelSignature("s", {"x": spec}, {"y": spec}), pipeline=True))
    pipeline.missing = "waits for the model small"
    frontend = RemoteRepository(cast(Any, None))

    def mirror() -> str:
        return mirrored(snapshot_of(pipeline), frontend).resolve("m").missing

    assert mirror() == "waits for the model small"
    pipeline.missing = ""
    assert not mirror()


def test_frontends_know_how_a_version_was_loaded() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None,))
    model = cast(Any, model_of(ModelSignature("s", {"x": spec}, {"y": spec})))
    model.note = "it runs in a session"
    assert mirrored(snapshot_of(model)).statuses("m") == [
        VersionStatus(1, VersionState.AVAILABLE, note="it runs in a session")
    ]


def test_frontends_know_why_a_version_is_held() -> None:
    catalog = Catalog()
    held = ModelProblem("m", None, ProblemKind.MISSING, "Model m has no version")
    catalog.held["m"] = {-1: held}
    snapshot = take_snapshot(catalog, (), lambda model: 7, lambda name: False)
    catalog.held["m"].clear()
    assert mirrored(snapshot).held == {"m": {-1: held}}
