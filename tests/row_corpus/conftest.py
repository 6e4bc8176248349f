"""The models of the corpus, saved once for all its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.row_corpus.catalog import write


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all cases; tests do not write into it."""
    folder = tmp_path_factory.mktemp("corpus")
    write(folder)
    return folder
