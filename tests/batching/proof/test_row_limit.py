from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.proof.row_limit import MOST_PASSED, RowLimit


@given(st.lists(st.sampled_from([2, 4, 8, 16, 32, 64]), max_size=300))
def test_bad_rows_are_tried_for_a_share_of_the_refusals(refused: list[int]) -> None:
    limit, tried = RowLimit(), 0
    for rows in refused:
        sought = limit.is_sought(rows)
        tried += sought
        limit.record(rows, 0 if sought else None)
    assert tried <= len(refused) / MOST_PASSED + 6


def test_the_search_is_never_given_up_while_it_shows_nothing() -> None:
    limit = RowLimit()
    for _ in range(1000):
        limit.record(64, 0)
    passed = 0
    while not limit.is_sought(64):
        limit.record(64, None)
        passed += 1
    assert passed == MOST_PASSED


@given(st.integers(2, 64), st.lists(st.sampled_from([2, 4, 8, 16, 32, 64]), max_size=100))
def test_a_search_that_shows_something_is_made_once_for_a_size_at_most(most: int, refused: list[int]) -> None:
    limit, calls = RowLimit(), 0
    for rows in refused:
        if limit.is_sought(rows):
            calls += 2 + (ceil(log2(rows)) if rows > most else 0)
            assert limit.record(rows, min(rows, most)) == (most if rows > most else 0)
        else:
            assert limit.record(rows, None) == 0
    assert calls <= 6 * 2 + 6
    assert limit.most_rows in {0, most}


def test_a_model_that_refuses_two_equal_rows_is_not_searched_again() -> None:
    limit = RowLimit()
    assert limit.is_sought(64)
    assert limit.record(64, 1) == 0
    assert not limit.is_sought(64)
    assert limit.most_rows == 0


@pytest.mark.parametrize(("accepted", "refused", "sought"), [(0, 1, False), (0, 2, True), (8, 8, False), (8, 16, True)])
def test_only_more_rows_than_the_model_accepted_may_be_too_many(accepted: int, refused: int, sought: bool) -> None:
    assert RowLimit(accepted_rows=accepted).is_sought(refused) is sought


def test_the_fewest_rows_that_were_rejected_are_suspected() -> None:
    limit = RowLimit(accepted_rows=4)
    for rows in (32, 8, 16, 4):
        limit.suspect(rows)
    assert limit.suspected_rows == 8
