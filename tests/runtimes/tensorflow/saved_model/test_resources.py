"""Tables of a version go when it goes, and versions that name theirs alike have one each."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from tests.runtimes.tensorflow.saved_model.table_models import KINDS, TABLE_BYTES


def places(model: SavedModel, *keys: int) -> list[int]:
    text = model.signatures["serving_default"].inputs["key"].dtype.kind not in "iu"
    values = np.array([b"%d" % key for key in keys], object) if text else np.array(keys, np.int64)
    found: list[int] = model.run("serving_default", {"key": values}, ())["place"].tolist()
    return found


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("make", KINDS)
def test_the_memory_of_tables_comes_back(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "1")

    def swap() -> int:
        model = SavedModel(tmp_path / "1")
        assert places(model, 5) == [5]
        model.close()
        return resident_bytes()

    first = max(swap() for _ in range(4))  # what the allocator keeps for the next one
    assert min([swap() for _ in range(9)][-3:]) - first < 4 * TABLE_BYTES


@pytest.mark.parametrize("make", KINDS)
def test_tables_of_two_versions_have_nothing_in_common(make: Callable[[Path, int], None], tmp_path: Path) -> None:
    make(tmp_path / "1", 0)
    make(tmp_path / "2", 100)
    one, same, two = (SavedModel(tmp_path / version) for version in ("1", "1", "2"))
    assert (places(one, 150, 0), places(same, 150, 0), places(two, 150, 0)) == ([150, 0], [150, 0], [50, -1])
    one.close()
    assert (places(same, 150, 0), places(two, 150, 0)) == ([150, 0], [50, -1])
    two.close()
    assert places(same, 150, 0) == [150, 0]
    same.close()
