"""All cases, and their models in a folder."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.row_corpus import (
    company,
    control_flow,
    graphs,
    order_and_place,
    reductions,
    tf1_graphs,
    words_and_tables,
)
from tests.row_corpus.row_case import RowCase

CASES: Sequence[RowCase] = (
    *reductions.CASES,
    *order_and_place.CASES,
    *company.CASES,
    *control_flow.CASES,
    *words_and_tables.CASES,
    *graphs.CASES,
    *tf1_graphs.CASES,
)

MIXING = [each for each in CASES if each.mixes]
TWINS = [each for each in CASES if not each.mixes]


def write(folder: Path, cases: Sequence[RowCase] = CASES) -> None:
    """All of them as '<folder>/<name>/1'."""
    for each in cases:
        each.make(folder / each.name / "1")


_FOLDER = tempfile.TemporaryDirectory(prefix="row-corpus-")


@functools.cache
def saved() -> Path:
    """The folder of all cases, written once for all tests; they do not write into it."""
    folder = Path(_FOLDER.name)
    write(folder)
    return folder
