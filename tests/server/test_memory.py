import ctypes
import gc
import platform
from collections.abc import Iterator
from typing import Any

import pytest

from app.server.memory import keep_freed_memory, spared_from_collection


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """The starts and stops of all collections during the test, after which the collector is as before."""
    told: list[str] = []

    def tell(phase: str, _: dict[str, Any]) -> None:
        told.append(phase)

    thresholds = gc.get_threshold()
    gc.callbacks.append(tell)
    yield told
    gc.callbacks.remove(tell)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="THE C LIBRARY IS NOT GLIBC: mallopt WAS NOT TRIED")
def test_glibc_takes_the_thresholds() -> None:
    assert keep_freed_memory()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()


def test_what_starts_up_is_never_walked_by_a_collection(collections: list[str]) -> None:
    frozen, started_up = gc.get_freeze_count(), []
    with spared_from_collection():
        started_up += [[number] for number in range(100_000)]
        assert not collections
    assert not collections
    assert gc.get_freeze_count() >= frozen + len(started_up)
    assert gc.isenabled()


def test_a_start_that_fails_leaves_the_collector_on(collections: list[str]) -> None:
    with pytest.raises(ValueError, match="no runtime"), spared_from_collection():
        raise ValueError("no runtime")
    assert gc.isenabled()
