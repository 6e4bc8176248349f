"""No folder of the program or of its tests holds more files than a reader takes in; the map of the tests is whole."""

from __future__ import annotations

import re

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


def test_the_map_of_the_tests_has_every_folder() -> None:
    told = re.findall(r"^\| `(\w+)` \|", (ROOT / "tests/README.md").read_text(), re.MULTILINE)
    there = [each.name for each in (ROOT / "tests").iterdir() if each.is_dir() and each.name != "__pycache__"]
    assert told == sorted(there)
