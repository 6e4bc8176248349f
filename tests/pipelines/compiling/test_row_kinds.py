from hypothesis import given
from hypothesis import strategies as st

from app.pipelines.compiling.row_kinds import RowKinds


def test_what_was_never_joined_is_of_its_own_kind() -> None:
    kinds = RowKinds()
    assert [kinds.number("a"), kinds.number("b"), kinds.number("a")] == [0, 1, 0]
    assert len(kinds) == 2


def test_joining_goes_through_others() -> None:
    kinds = RowKinds()
    kinds.join(["a", "b"])
    kinds.join(["c", "d"])
    kinds.join(["d", "a"])
    assert {kinds.number(place) for place in "abcd"} == {0}
    assert len(kinds) == 1


def test_one_place_may_be_joined_with_itself() -> None:
    kinds = RowKinds()
    kinds.join(["a"])
    kinds.join(["a", "a", "a"])
    assert kinds.number("a") == 0


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=12))
def test_places_are_of_one_kind_exactly_if_a_way_of_joins_leads_from_one_to_the_other(joins: list[list[int]]) -> None:
    kinds, near = RowKinds(), {place: {place} for place in range(10)}
    for places in joins:
        kinds.join(places)
        for place in places:
            near[place].update(places)
    for place in range(10):
        reached, left = set(), [place]
        while left:
            if (at := left.pop()) not in reached:
                reached.add(at)
                left += near[at]
        assert {other for other in range(10) if kinds.number(other) == kinds.number(place)} == reached
    assert {kinds.number(place) for place in range(10)} == set(range(len(kinds)))
