"""No folder of the program or of its tests holds more files than a reader takes in."""

from __future__ import annotations

import pytest

from tests.deploy.manifests import ROOT

MOST_FILES = 18


@pytest.mark.parametrize("tree", ["app", "clients", "tests"])
def test_no_folder_has_more_than_18_files(tree: str) -> None:
    counts = {
        str(folder.relative_to(ROOT)): len(list(folder.glob("*.py")))
        for folder in (ROOT / tree).rglob("*")
        if folder.is_dir()
    }
    assert counts
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}
