import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.priority import BULK, BULK_S, DEFAULT_LEVEL, LEVEL_S, LOWEST_LEVEL, priority_offset_s
from app.batching.request import PendingRequest
from tests.support.fakes import FakeReply


@pytest.mark.parametrize(
    ("priority", "levels"),
    [(0, 0), (DEFAULT_LEVEL, 0), (1, DEFAULT_LEVEL - 1), (LOWEST_LEVEL, DEFAULT_LEVEL - LOWEST_LEVEL)],
)
def test_a_level_is_worth_a_stretch_of_waiting(priority: int, levels: int) -> None:
    assert priority_offset_s(priority) == pytest.approx(levels * LEVEL_S)


@given(st.integers(1, 2**64), st.integers(1, 2**64))
def test_lower_numbers_start_ahead_by_a_bounded_offset(one: int, other: int) -> None:
    assert (priority_offset_s(one) >= priority_offset_s(other)) == (min(one, LOWEST_LEVEL) <= min(other, LOWEST_LEVEL))
    assert abs(priority_offset_s(one)) <= LEVEL_S * LOWEST_LEVEL


def test_bulk_is_below_all_levels() -> None:
    assert priority_offset_s(BULK) == -BULK_S
    assert priority_offset_s(LOWEST_LEVEL) > -BULK_S


@given(st.floats(1.0, 1e9), st.floats(0.0, 3.0))
def test_who_has_more_than_a_second_waits_a_second_for_urgent_ones_and_no_longer(time_s: float, later_s: float) -> None:
    patient = PendingRequest({}, 1, FakeReply(), 0.0, time_s)
    urgent = PendingRequest({}, 1, FakeReply(), later_s, later_s)
    assert (urgent.scheduling_key_s < patient.scheduling_key_s) == (later_s < 1.0)
