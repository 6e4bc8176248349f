"""Trees by fold.c, and by numpy where that was not compiled: a module that imports `each_core` is tried with both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.pipelines.fold import compiled_fold
from tests.support.missing import skip_loudly


@pytest.fixture(scope="module", autouse=True, params=["compiled", "numpy"])
def each_core(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "numpy":
        with by_numpy():
            yield
        return
    if compiled_fold.library() is None:
        skip_loudly("NO C COMPILER WHEN FERRY WAS INSTALLED: fold.c IS NOT TRIED")
    yield


@contextmanager
def by_numpy() -> Iterator[None]:
    """Agendas that are made meanwhile do not use fold.c."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_fold, "library", lambda: None)
        yield
