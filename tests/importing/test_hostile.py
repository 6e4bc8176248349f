"""Hostile files: an import ends in one sentence, runs nothing of them, leaves nothing, and keeps within its memory.

Those that take memory, time or files go through a child process with its limits, as all do elsewhere. Those that are
refused as they are read are read here, which saves the start of 15 children, 3 s of CPU each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.machine_memory import resident_bytes
from app.importing import in_child
from app.importing.child import import_here, result_or_failure
from app.importing.in_child import import_in_child
from app.importing.order import CannotImport, ImportOrder
from app.repository.disk.importable import format_of
from tests.importing import hostile_files as files
from tests.importing.hostile_files import HOSTILE, Makings

#: Enough for TensorFlow, and a part of what the bombs would take.
_MEMORY = 2 << 30


#: What is refused as it is read: nothing of it is run, and no limit is needed.
_READ_HERE = (
    files.truncated, files.path_out_of_the_archive, files.link_in_the_archive, files.class_of_another_module,
    files.unsafe_switch, files.file_as_vocabulary, files.weights_of_another_model, files.weights_that_are_not_numbers,
    files.truncated_hdf5, files.link_out_of_hdf5,
    files.pickle_as_archive, files.pickle_as_hdf5, files.pickle_in_mlflow, files.truncated_graph, files.circle,
    files.path_out_of_mlflow, files.python_in_a_savedmodel,
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Makings:
    return Makings.of(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("make", _READ_HERE, ids=lambda make: make.__name__)
def test_a_hostile_file_is_refused_in_one_sentence(
    make: Callable[[Makings], Path], made: Makings, tmp_path: Path
) -> None:
    source = make(Makings(tmp_path, made.archive, tmp_path / "marker"))
    before = sorted(tmp_path.rglob("*"))
    (staging := tmp_path / "staging").mkdir()
    order = ImportOrder(str(source), str(tmp_path / "models" / "mine" / "1"), memory_bytes=_MEMORY)
    failure = result_or_failure(import_here, order, format_of(source), staging, lambda _: None)
    assert isinstance(failure, str)
    assert re.search(HOSTILE[make], failure)
    assert "\n" not in failure
    assert "Traceback" not in failure
    assert [path for path in sorted(tmp_path.rglob("*")) if not path.is_relative_to(staging)] == before


@pytest.mark.parametrize("make", [each for each in HOSTILE if each not in _READ_HERE], ids=lambda make: make.__name__)
def test_nothing_comes_of_a_hostile_file(
    make: Callable[[Makings], Path], made: Makings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make(Makings(tmp_path, made.archive, tmp_path / "marker"))
    before = sorted(tmp_path.rglob("*"))
    taken = [0.0]

    def resident(process: int) -> float:
        taken.append(resident_bytes(process))
        return taken[-1]

    monkeypatch.setattr(in_child, "resident_bytes", resident)
    limit_s = 15.0 if HOSTILE[make] == "--limit-s" else 300.0
    order = ImportOrder(str(source), str(tmp_path / "models" / "mine" / "1"), limit_s=limit_s, memory_bytes=_MEMORY)
    with pytest.raises(CannotImport) as caught:
        import_in_child(order, format_of(source), lambda _: None)
    assert re.search(HOSTILE[make], str(caught.value))
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert max(taken) < _MEMORY
