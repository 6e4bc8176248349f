from hypothesis import given
from hypothesis import strategies as st

from app.core.batch_sizes import BatchSizes, most_accepted


def test_powers_of_two_end_with_the_largest() -> None:
    assert BatchSizes.powers_of_two(8).allowed == (1, 2, 4, 8)
    assert BatchSizes.powers_of_two(6).allowed == (1, 2, 4, 6)
    assert BatchSizes.powers_of_two(1).allowed == (1,)


def test_sizes_may_be_given() -> None:
    assert BatchSizes.of(10, [5, 10]).allowed == (5, 10)
    assert BatchSizes.of(4).allowed == (1, 2, 4)


def test_no_rows_need_no_padding() -> None:
    assert BatchSizes.powers_of_two(8).padded(0) == 0


@given(st.integers(1, 300), st.data())
def test_padding_is_least_and_less_than_half(largest: int, data: st.DataObject) -> None:
    sizes = BatchSizes.powers_of_two(largest)
    rows = data.draw(st.integers(1, largest))
    padded = sizes.padded(rows)
    assert padded in sizes.allowed
    assert rows <= padded < 2 * rows
    assert not any(rows <= size < padded for size in sizes.allowed)


@given(st.integers(1, 300), st.integers(1, 400))
def test_sizes_up_to_a_number_are_those_below_and_the_number(largest: int, most: int) -> None:
    sizes = BatchSizes.powers_of_two(largest)
    found = sizes.up_to(most)
    assert found.largest == min(largest, most)
    assert set(found.allowed) - {most} == {size for size in sizes.allowed if size <= most} - {most}


@given(st.integers(1, 300), st.data())
def test_the_largest_number_that_is_accepted_is_found_in_few_calls_of_few_rows(
    refused: int, data: st.DataObject
) -> None:
    refused += 1
    most = data.draw(st.integers(1, refused - 1))
    accepted, calls = data.draw(st.integers(1, most)), list[int]()

    def accepts(rows: int) -> bool:
        calls.append(rows)
        return rows <= most

    assert most_accepted(accepts, accepted, refused) == most
    assert len(calls) <= refused.bit_length()
    assert all(accepted < rows < refused for rows in calls)
