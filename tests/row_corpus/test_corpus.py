"""The corpus is what it says: rows that mix do so in calls of the model itself, and those of twins never do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.row_corpus.catalog import CASES, MIXING, TWINS, saved
from tests.row_corpus.row_case import DirectCalls, Inputs, RowCase, called, differs

#: Rows of the requests that are called alone and together.
SIZES = ((1, 1), (1, 2), (2, 3), (5, 3, 1), (1, 8), (2, 2))


@pytest.fixture(scope="module")
def direct() -> DirectCalls:
    return DirectCalls(saved())


def requests_of(case: RowCase, seed: int = 0) -> list[list[Inputs]]:
    rng = np.random.default_rng(seed)
    return [[case.draw(rng, rows) for rows in sizes] for sizes in SIZES * 2]


def test_the_corpus_has_sixty_of_both_kinds_with_names_of_their_own() -> None:
    assert len(MIXING) >= 60
    assert len(TWINS) >= 60
    assert len({each.name for each in CASES}) == len(CASES)


@pytest.mark.parametrize("case", MIXING, ids=lambda case: case.name)
def test_rows_that_mix_are_answered_otherwise_in_company(case: RowCase, direct: DirectCalls) -> None:
    assert any(differs(direct.function(case.name), requests) for requests in requests_of(case))


@pytest.mark.parametrize("case", TWINS, ids=lambda case: case.name)
def test_rows_of_a_twin_are_answered_alike_in_any_company(case: RowCase, direct: DirectCalls) -> None:
    assert not any(differs(direct.function(case.name), requests) for requests in requests_of(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_drawn_request_is_valid(case: RowCase, direct: DirectCalls) -> None:
    for requests in requests_of(case, seed=1):
        for each in requests:
            called(direct.function(case.name), each)
