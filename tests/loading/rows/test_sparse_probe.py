"""The probe of rows of a SparseTensor, with real models: what it says, and what calls of their functions say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.batch_sizes import BatchSizes
from app.core.inference import ModelSignature, SparseParts, TensorSpec
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.rows.probe_rows import KINDS, probe_row, shapes_to_try
from app.loading.rows.row_probe import ProbedRows, probe_rows
from app.runtime import RuntimeOptions, create_runtime
from tests.support.models.sparse_models import INDEPENDENT, LOOKUPS, MIXING, UNSAFE_LOOKUPS, WIDTH, Function, save

NUMBERS: Mapping[str, Function] = {**INDEPENDENT, **MIXING}


def probed(path: Path, name: str, width: int | None = WIDTH) -> ProbedRows:
    function = {**NUMBERS, **LOOKUPS, **UNSAFE_LOOKUPS}[name]
    save(path / "1", function, tf.float32 if name in NUMBERS else tf.int64, width)
    model = create_runtime("tensorflow", RuntimeOptions()).load(path / "1")
    signature = model.signatures["serving_default"]
    return probe_rows(BudgetedModel(model, TimeBudget(60.0)), signature, BatchSizes.powers_of_two(16))


@pytest.mark.parametrize("name", [*INDEPENDENT, *LOOKUPS])
def test_independent_rows_are_proven_up_to_the_largest_size(tmp_path: Path, name: str) -> None:
    found = probed(tmp_path, name)
    assert (found.proven, found.rows, found.dependent) == ({"y"}, 16, {})


@pytest.mark.parametrize("width", [WIDTH, None])
@pytest.mark.parametrize("name", [*MIXING, *UNSAFE_LOOKUPS])
def test_rows_that_see_each_other_are_never_proven(tmp_path: Path, name: str, width: int | None) -> None:
    found = probed(tmp_path, name, width)
    assert not found.proven
    assert found.dependent.keys() == {"y"} or found.unproven


def test_rows_that_are_too_wide_to_try_all_of_their_cells_are_not_tried(tmp_path: Path) -> None:
    found = probed(tmp_path, "sum", 2**20)
    assert (found.proven, found.unproven) == (
        set(),
        "a sparse row has 1,048,576 cells, too many to try all of them",
    )


def signature(*sizes: int | None) -> ModelSignature:
    specs = {
        "x": TensorSpec("x", np.dtype(np.int64), (None, 1 + len(sizes))),
        "x_1": TensorSpec("x_1", np.dtype(np.float32), (None,)),
        "x_2": TensorSpec("x_2", np.dtype(np.int64), (1 + len(sizes),)),
    }
    return ModelSignature("f", specs, {}, sparse=(SparseParts("x", "x_1", "x_2"),), sparse_sizes={"x": sizes})


@pytest.mark.parametrize("sizes", [(), (4,), (None,), (3, None), (2, 2, 2), (0,)])
def test_rows_have_no_entry_some_or_all_each_at_a_place_of_its_own(sizes: tuple[int | None, ...]) -> None:
    random, sparse = np.random.default_rng(1), signature(*sizes)
    naming, named = next(shapes_to_try(sparse))
    inner = tuple(named[each] if isinstance(each, str) else each for each in naming["x_2"])
    counts = set()
    for _ in range(40):
        row: Any = probe_row(sparse, naming, named, KINDS[1], random)
        places = row["x"].tolist()
        assert row["x_2"].tolist() == [1, *inner]
        assert row["x"].shape == (len(row["x_1"]), 1 + len(inner))
        assert places == sorted(places)
        assert len({tuple(each) for each in places}) == len(places)
        assert (row["x"] < row["x_2"]).all()
        counts.add(len(places))
    assert {0, int(np.prod(inner))} <= counts
    assert all(size is None or size == own for size, own in zip(sizes, inner, strict=True))
