from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.waiting.room import Room
from app.core.errors import Overloaded


def room(max_rows: int, *models: str, **weights: float) -> Room:
    made = Room(max_rows, weights)
    for model in models:
        made.add_version(model)
    return made


def add(room: Room, model: str, rows: int, *, bulk: bool = False) -> None:
    room.add(model, room.check(model, rows, bulk=bulk))


def test_a_single_model_may_fill_the_queue() -> None:
    alone = room(10, "a")
    add(alone, "a", 10)
    with pytest.raises(Overloaded, match="10 of 10 rows wait, 1 more do not fit"):
        add(alone, "a", 1)


def test_half_of_the_room_is_kept_by_weight_and_the_rest_is_for_all() -> None:
    shared = room(40, "a", "b", b=9)
    assert (shared.kept("a"), shared.kept("b")) == (2, 18)
    add(shared, "a", 22)
    with pytest.raises(Overloaded, match="22 of 40 rows wait, 18 are kept for other models, 1 more do not fit"):
        add(shared, "a", 1)
    add(shared, "b", 18)
    with pytest.raises(Overloaded, match="40 of 40 rows wait, 1 more do not fit"):
        add(shared, "b", 1)


def test_models_without_weights_are_equal() -> None:
    assert [room(60, "a", "b", "c").kept(model) for model in "abc"] == [10, 10, 10]


def test_what_is_kept_follows_the_models_that_are_served() -> None:
    shared = room(40, "a", "b")
    shared.add_version("b")
    shared.remove_version("b")
    assert shared.kept("b") == 10
    shared.remove_version("b")
    assert shared.kept("a") == 0
    shared.remove_version("unknown")
    shared.add_version("c")
    shared.set_weight("c", 3)
    assert (shared.kept("a"), shared.kept("c")) == (5, 15)
    shared.set_weight("c", 0)
    assert repr(shared) == "<Room 0/40 rows (a: 0, 10 kept, c: 0, 10 kept)>"


def test_a_model_is_served_while_it_has_a_version_whatever_waits() -> None:
    shared = room(40, "a", "a")
    add(shared, "a", 3)
    served = []
    for _ in range(2):
        shared.remove_version("a")
        served.append(shared.serves("a"))
    assert served == [True, False]
    assert not shared.serves("unknown")


def test_bulk_requests_use_half_of_the_queue() -> None:
    shared = room(10, "a")
    add(shared, "a", 8, bulk=True)  # nobody waits whom it could be in the way of
    with pytest.raises(Overloaded, match="8 of 5 rows wait, 1 more do not fit"):
        add(shared, "a", 1, bulk=True)
    add(shared, "a", 2)


def test_a_queue_that_serves_no_model_yet_keeps_nothing() -> None:
    shared = Room(10, {})
    add(shared, "b", 1)
    add(shared, "a", 9)


def test_a_request_takes_as_much_room_as_its_rows_or_its_bytes_need() -> None:
    by_both, by_bytes, by_rows = Room(10, {}, 1000), Room(0, {}, 1000), Room(10, {})
    assert [by_both.needed(2, size) for size in (0, 200, 201, 1000, 1001)] == [2, 2, 3, 10, 11]
    assert [by_bytes.needed(2, size) for size in (1, 2, 3, 1001)] == [2, 2, 3, 1001]
    assert [by_rows.needed(2, size) for size in (0, 10**12)] == [2, 2]
    assert repr(by_bytes) == "<Room 0/1000 bytes ()>"


def test_a_request_larger_than_its_models_room_is_accepted_and_takes_half_of_it() -> None:
    shared = room(40, "a", "b")
    add(shared, "b", 10)  # what is kept for it
    assert shared.check("a", 1000, bulk=False) == 15
    shared.add("a", 15)
    for rows in (16, 1000):
        with pytest.raises(Overloaded, match=f"25 of 40 rows wait, {rows} more do not fit"):
            shared.check("a", rows, bulk=False)
    add(shared, "a", 15)
    for model, rows in (("a", 1), ("b", 1), ("unknown", 1), ("a", 1000)):
        with pytest.raises(Overloaded, match="40 of 40 rows wait"):
            shared.check(model, rows, bulk=False)
    shared.add("b", -4)
    add(shared, "b", 4)  # what is kept for it stays its own


def test_light_traffic_keeps_no_large_request_out_and_there_is_one_at_a_time() -> None:
    shared = room(40, "m")
    add(shared, "m", 19)
    for rows in (22, 1000):  # one that would find room in an empty queue, and one that never would
        assert shared.check("m", rows, bulk=False) == 20
    shared.add("m", 20)
    for rows in (2, 1000):
        with pytest.raises(Overloaded):
            shared.check("m", rows, bulk=False)
    add(shared, "m", 1)


def test_a_step_that_waits_in_any_case_takes_what_it_needs_or_half_of_what_is_free() -> None:
    shared = room(40, "a", "b")
    assert shared.share("a", 30) == 30
    assert shared.share("a", 31) == 15
    shared.add("a", 30)
    assert shared.share("a", 1) == 0
    assert shared.share("b", 10) == 10
    assert shared.share("b", 11) == 5


def test_even_a_room_of_one_row_takes_a_large_request() -> None:
    assert room(1, "a").check("a", 1000, bulk=False) == 1


def test_bulk_work_larger_than_the_room_waits_for_an_empty_queue() -> None:
    shared = room(40, "a", "b")
    add(shared, "b", 1)
    with pytest.raises(Overloaded, match="1 of 20 rows wait, 9 are kept for other models, 1000 more do not fit"):
        shared.check("a", 1000, bulk=True)
    shared.add("b", -1)
    add(shared, "a", 1000, bulk=True)


def test_a_caller_may_send_a_request_larger_than_the_room_and_others_find_some() -> None:
    shared = room(10, "m")
    assert shared.check("m", 11, bulk=False, caller="a") == 3
    shared.add("m", 3, "a")
    assert shared.check("m", 7, bulk=False, caller="b") == 7
    with pytest.raises(Overloaded, match="3 of 10 rows wait, 8 more do not fit"):
        shared.check("m", 8, bulk=False, caller="b")


def test_a_caller_finds_room_beside_its_own_large_request_or_step() -> None:
    """It had half of the room, which is all that a caller may have, so each other request of it was rejected."""
    for take in (lambda each: each.check("m", 1000, bulk=False, caller="a"), lambda each: each.share("m", 1000, "a")):
        shared = room(40, "m")
        shared.add("m", take(shared), "a")
        for _ in range(10):
            shared.add("m", shared.check("m", 1, bulk=False, caller="a"), "a")
        with pytest.raises(Overloaded, match="full for this caller: 20 of its rows wait, 20 are left"):
            shared.check("m", 1, bulk=False, caller="a")
        assert shared.check("m", 20, bulk=False, caller="b") == 20


def test_rows_of_a_model_that_is_served_no_more_are_counted_until_they_leave() -> None:
    shared = room(40, "a", "b")
    add(shared, "a", 5)
    shared.remove_version("a")
    shared.remove_version("a")  # it has none left
    shared.add_version("a")
    assert shared.kept("a") == 10
    add(shared, "b", 1)
    shared.check("b", 29, bulk=False)  # 5 more are kept for the other model
    assert shared.check("b", 30, bulk=False) == 15, "it is larger than what is free, and takes half"


def test_a_model_that_is_not_served_leaves_what_is_kept_for_others() -> None:
    shared = room(40, "a", "b")
    add(shared, "unknown", 1)
    assert [shared.check("unknown", rows, bulk=False) for rows in (19, 20)] == [19, 10]
    add(shared, "unknown", 9)
    with pytest.raises(Overloaded, match="20 are kept for other models"):
        shared.check("unknown", 20, bulk=False)


def test_what_is_kept_for_a_model_stays_when_its_rows_leave_and_other_models_are_forgotten() -> None:
    shared = room(40, "a", "b")
    for model in ("a", "unknown"):
        shared.add(model, 5)
        shared.add(model, -5)
    assert repr(shared) == "<Room 0/40 rows (a: 0, 10 kept, b: 0, 10 kept)>"
    assert shared._callers == {}


def test_a_caller_has_as_many_bulk_requests_as_are_left_for_bulk() -> None:
    shared = room(10, "m")
    shared.add("m", 4, "a")
    shared.check("m", 1, bulk=True, caller="b")
    shared.check("m", 1, bulk=False, caller="a")
    with pytest.raises(Overloaded, match="full for this caller: 4 of its rows wait, 1 are left"):
        shared.check("m", 1, bulk=True, caller="a")


changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "leave", "weigh", "serve"]),
        st.sampled_from("abcd"),
        st.integers(1, 9) | st.just(40),
    ),
    max_size=60,
)


@given(changes, st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0.1, 1.0, 9.0])))
def test_sums_are_right_and_no_more_waits_than_fits(
    changes: list[tuple[str, str, int]], weights: Mapping[str, float]
) -> None:
    shared = room(30, "a", "b", **weights)
    waiting: dict[str, list[int]] = {}
    for change, model, number in changes:
        rows = sum(waiting.get(model, []))
        if change == "add":
            empty = not rows and all(sum(each) <= shared.kept(name) for name, each in waiting.items())
            others = sum([max(sum(waiting.get(each, [])), shared.kept(each)) for each in "abcd" if each != model])
            try:
                taken = shared.check(model, number, bulk=False)
                whole = 30 - sum([shared.kept(each) for each in "abcd" if each != model])
                free = max(30 - others - rows, shared.kept(model) - rows)
                assert taken == (number if number <= free else (whole + 1) // 2)
                assert number <= free or whole - free < taken, "there is one large one at a time"
                shared.add(model, taken)
                assert rows + number <= shared.kept(model) or shared.rows <= 30
                waiting.setdefault(model, []).append(taken)
            except Overloaded:
                pass
        elif change == "leave" and waiting.get(model):
            shared.add(model, -waiting[model].pop())
        elif change == "weigh":
            shared.set_weight(model, number)
        elif change == "serve":
            shared.add_version(model)
        assert shared.rows == sum(map(sum, waiting.values()))
        unused = {each: max(0, shared.kept(each) - sum(waiting.get(each, []))) for each in "abcd"}
        assert shared._unused == sum(unused.values())
        assert sum(map(shared.kept, "abcd")) <= 15
        if change == "add" and (empty or number <= shared.kept(model) - rows):
            assert sum(waiting[model]) == rows + taken


def test_a_caller_may_have_as_much_as_it_leaves_for_all() -> None:
    shared = room(10, "m")
    shared.check("m", 10, bulk=False, caller="a")  # nothing of its own waits
    shared.add("m", 4, "a")
    with pytest.raises(Overloaded, match="4 of its rows wait, 6 are left for all callers, 3 more do not fit"):
        shared.check("m", 3, bulk=False, caller="a")
    shared.check("m", 2, bulk=False, caller="a")
    shared.check("m", 6, bulk=False, caller="b")
    shared.check("m", 6, bulk=False)


def test_a_caller_of_whom_nothing_waits_is_forgotten() -> None:
    shared = room(10, "m")
    for caller in ("a", "b"):
        shared.add("m", 3, caller)
    shared.add("m", -1, "a")
    shared.add("m", -2, "a")
    assert shared._callers == {"b": 3}
    shared.check("m", 7, bulk=False, caller="a")
