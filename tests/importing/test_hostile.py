"""Hostile files: an import ends in one sentence, runs nothing of them, leaves nothing, and keeps within its memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.machine_memory import resident_bytes
from app.importing import in_child
from app.importing.in_child import import_in_child
from app.importing.order import CannotImport, ImportOrder
from app.repository.disk.importable import format_of
from tests.importing.hostile_files import HOSTILE, Makings

#: Enough for TensorFlow, and a part of what the bombs would take.
_MEMORY = 2 << 30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Makings:
    return Makings.of(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
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
    limit_s = 40.0 if HOSTILE[make] == "--limit-s" else 300.0
    order = ImportOrder(str(source), str(tmp_path / "models" / "mine" / "1"), limit_s=limit_s, memory_bytes=_MEMORY)
    with pytest.raises(CannotImport) as caught:
        import_in_child(order, format_of(source), lambda _: None)
    assert re.search(HOSTILE[make], str(caught.value))
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert max(taken) < _MEMORY
