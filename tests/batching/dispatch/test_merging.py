from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.dispatch.merging import merge_buckets
from app.batching.queue import Lane, RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.shapes.padding import ShapePadding
from tests.support.fakes import FakeFunction, FakeReply, batch_function

LARGEST = 16


class Lanes:
    """Lanes of sequences: the length of each, and the rows of the requests that wait in it."""

    def __init__(self, call_cells: float, *waiting: tuple[int, Sequence[int]]) -> None:
        padding = ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0}, call_cells=call_cells)
        self.queue = RequestQueue(10**6)
        for length, all_rows in waiting:
            key = LaneKey("m", 1, "f", (), ((length,),), True)
            function = batch_function(FakeFunction(), LARGEST, padding=padding)
            for rows in all_rows:
                inputs = {"x": np.zeros((rows, length), np.float32)}
                self.queue.push(key, function, PendingRequest(inputs, rows, FakeReply(), 0.0))

    def distrust(self) -> None:
        (lane, *_) = self.queue.lanes
        assert lane.function.padding is not None
        lane.function.padding.enabled = False

    def merge_buckets(self, rows: int | None = None, most: int = LARGEST) -> dict[int, int]:
        """Rows of other lanes that join the batch of the first lane, by length."""
        lane, *_ = self.queue.lanes
        found = merge_buckets(lane, lane.rows if rows is None else rows, most, self.queue)
        return {neighbour.key.shape[0][0]: more for neighbour, more in found}


def test_a_dear_call_is_worth_padding_and_a_cheap_one_is_not() -> None:
    waiting = (32, [1, 1]), (40, [1, 1])
    assert Lanes(100.0, *waiting).merge_buckets() == {40: 2}  # 2 calls fewer cells than 2 x 8 cells of padding
    assert Lanes(10.0, *waiting).merge_buckets() == {}


def test_what_saves_nothing_is_not_merged() -> None:
    waiting = (32, [1, 1]), (40, [1, 1])  # one call less, and twice 8 cells of padding more
    assert Lanes(16.0, *waiting).merge_buckets() == {}
    assert Lanes(17.0, *waiting).merge_buckets() == {40: 2}


def test_rows_that_need_a_call_of_their_own_anyway_are_left_together() -> None:
    assert Lanes(100.0, (32, [13]), (64, [3, 13])).merge_buckets() == {}


def test_padding_rows_are_filled_by_shorter_buckets() -> None:
    assert Lanes(0.0, (32, [5]), (16, [1, 1, 1, 1])).merge_buckets() == {16: 3}  # 5 rows are padded to 8
    assert Lanes(0.0, (32, [8]), (16, [1, 1, 1, 1])).merge_buckets() == {}


def test_the_nearest_come_first_while_there_is_room() -> None:
    assert Lanes(1e6, (32, [8]), (256, [4]), (28, [4]), (64, [3]), (8, [4])).merge_buckets() == {28: 4, 64: 3}
    assert Lanes(1e6, (32, [16]), (28, [4])).merge_buckets() == {}
    assert Lanes(1e6, (32, [4]), (28, [4])).merge_buckets(most=6) == {}
    assert Lanes(1e6, (32, [4]), (28, [4])).merge_buckets(most=4) == {}


def test_a_lane_whose_first_request_does_not_fit_is_left_alone() -> None:
    assert Lanes(1e6, (32, [10]), (28, [7, 1]), (64, [2])).merge_buckets() == {64: 2}


def test_requests_that_left_meanwhile_are_not_counted() -> None:
    lanes = Lanes(1e6, (32, [10]), (28, [7, 6]))
    next(iter(list(lanes.queue.lanes)[1])).reply.set_result("gone")
    assert lanes.merge_buckets() == {28: 6}


@pytest.mark.parametrize(
    ("key", "joins"),
    [
        (LaneKey("m", 1, "f", (), ((28,),), True), True),
        (LaneKey("m", 1, "f", (), ((28,),), False), False),
        (LaneKey("m", 1, "f", ("y",), ((28,),), True), False),
        (LaneKey("m", 1, "g", (), ((28,),), True), False),
        (LaneKey("m", 2, "f", (), ((28,),), True), False),
        (LaneKey("n", 1, "f", (), ((28,),), True), False),
        (LaneKey("m", 1, "f", (), ((28,),), True, generation=1), False),
    ],
)
def test_only_lanes_of_the_same_call_are_neighbours(key: LaneKey, joins: bool) -> None:
    lanes = Lanes(1e6, (32, [1]))
    (lane,) = lanes.queue.lanes
    inputs = {"x": np.zeros((2, 28), np.float32)}
    lanes.queue.push(key, lane.function, PendingRequest(inputs, 2, FakeReply(), 0.0))
    other = lanes.queue.lane(key)
    assert list(merge_buckets(lane, 1, LARGEST, lanes.queue)) == ([(other, 2)] if joins else [])


@pytest.mark.parametrize(("in_vain", "joins"), [(3, {64: 1}), (4, {})])
def test_after_four_buckets_in_vain_no_further_one_is_looked_at(in_vain: int, joins: dict[int, int]) -> None:
    too_large = [(length, [LARGEST]) for length in (31, 33, 30, 34)[:in_vain]]
    assert Lanes(1e6, (32, [1]), *too_large, (64, [1])).merge_buckets() == joins


def test_four_buckets_in_vain_must_be_in_a_row() -> None:
    too_large = [(length, [LARGEST]) for length in (31, 33, 30)]
    more = [(length, [LARGEST]) for length in (42, 44, 46)]
    found = Lanes(1e6, (32, [1]), *too_large, (40, [1]), *more, (64, [2])).merge_buckets()
    assert found == {40: 1, 64: 2}


def test_a_lane_of_equal_shapes_takes_none_of_a_padded_one() -> None:
    lanes = Lanes(1e6, (32, [1]))
    (padded,) = lanes.queue.lanes
    equal = Lane(LaneKey("m", 1, "f", (), ((32,),), False), padded.function)
    assert list(merge_buckets(equal, 1, LARGEST, lanes.queue)) == []


def test_padding_that_was_stopped_merges_no_buckets() -> None:
    lanes = Lanes(1e6, (32, [1]), (28, [1]))
    lanes.distrust()
    assert lanes.merge_buckets() == {}


def test_a_lane_that_is_not_padded_merges_no_buckets() -> None:
    queue, function = RequestQueue(10), batch_function(FakeFunction())
    for length in (28, 32):
        queue.push(LaneKey("m", 1, "f", (), ((length,),)), function, PendingRequest({}, 1, FakeReply(), 0.0))
    lane, _ = queue.lanes
    assert list(merge_buckets(lane, 1, 4, queue)) == []


def price(call_cells: int, rows: int, cells: int) -> int:
    """The cells of the calls for so many rows, full ones first; each is padded to a power of two."""
    if not rows:
        return 0
    taken = min(rows, LARGEST)
    return call_cells + (1 << (taken - 1).bit_length()) * cells + price(call_cells, rows - taken, cells)


def front(waiting: Sequence[int], room: int) -> int:
    """The rows of the requests at the front that fit into the room; one without rows counts as one."""
    weights = [rows or 1 for rows in waiting]
    return max(sum(weights[:count]) for count in range(len(weights) + 1) if sum(weights[:count]) <= room)


@given(
    st.integers(0, 400),
    st.integers(1, LARGEST),
    st.integers(1, 40),
    st.lists(st.integers(0, LARGEST), min_size=1, max_size=12),
)
def test_of_nothing_and_all_that_fits_and_what_fills_padding_rows_the_cheapest_is_taken(
    call_cells: int, rows: int, length: int, waiting: list[int]
) -> None:
    found = Lanes(call_cells, (20, [rows]), (length if length != 20 else 21, waiting)).merge_buckets()
    other = length if length != 20 else 21
    total, longer = sum(each or 1 for each in waiting), max(20, other)
    padding_rows = (1 << (rows - 1).bit_length()) - rows

    def cost(taken: int) -> int:
        return price(call_cells, rows + taken, longer if taken else 20) + price(call_cells, total - taken, other)

    best = min((0, front(waiting, LARGEST - rows), front(waiting, min(LARGEST - rows, padding_rows))), key=cost)
    assert found == ({other: best} if best else {})


def test_what_was_merged_counts_for_what_is_merged_next() -> None:
    padding = ShapePadding({"x": ("a", "b")}, {"y": ("a", "b")}, {"x": 0}, call_cells=600.0)
    lanes = Lanes(0.0)
    for high, wide in ((8, 16), (16, 8), (16, 16)):
        key = LaneKey("m", 1, "f", (), ((high, wide),), True)
        inputs = {"x": np.zeros((1, high, wide), np.float32)}
        function = batch_function(FakeFunction(), LARGEST, padding=padding)
        lanes.queue.push(key, function, PendingRequest(inputs, 1, FakeReply(), 0.0))
    lane, *_ = lanes.queue.lanes
    found = [(each.key.shape[0], rows) for each, rows in merge_buckets(lane, 1, LARGEST, lanes.queue)]
    assert found == [((16, 8), 1), ((16, 16), 1)]


@given(
    st.floats(0, 1e6),
    st.dictionaries(st.integers(1, 300), st.lists(st.integers(0, 20), min_size=1, max_size=30), min_size=1, max_size=8),
    st.integers(1, LARGEST),
)
def test_no_batch_has_more_than_its_rows_and_what_is_told_can_be_taken(
    call_cells: float, waiting: dict[int, list[int]], most: int
) -> None:
    lanes = Lanes(call_cells, *waiting.items())
    lane, *_ = lanes.queue.lanes
    taken = lanes.queue.take(lane, most, LARGEST, 0.0)
    rows = sum(request.rows for request in taken)
    for neighbour, more in merge_buckets(lane, rows, most, lanes.queue):
        guests = lanes.queue.take(neighbour, more, LARGEST, 0.0)
        assert sum(request.counted_rows for request in guests) == more > 0
        rows += more
    assert rows <= max(most, taken[0].rows)
