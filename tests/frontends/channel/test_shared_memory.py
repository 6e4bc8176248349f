import os
import threading
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.frontends.channel.shared_memory import (
    PAGE,
    BlockAllocator,
    SharedMemoryReader,
    SharedMemoryWriter,
    create_memory,
)

SIZE = 8 * PAGE

Ends = tuple[SharedMemoryWriter, SharedMemoryReader]


@pytest.fixture
def ends() -> Ends:
    file = create_memory(SIZE)
    made = SharedMemoryWriter(file), SharedMemoryReader(file)
    os.close(file)
    return made


def test_an_array_is_read_in_place_and_not_to_be_written(ends: Ends) -> None:
    writing, reading = ends
    array = np.arange(20, dtype=np.int32)[::2].reshape(2, 5)
    start = writing.put(array)
    assert start == 0
    seen = reading.array(start, array.shape, array.dtype)
    np.testing.assert_array_equal(seen, array)
    assert not seen.flags.writeable
    assert not seen.flags.owndata


def test_a_block_is_free_when_the_last_cut_of_it_is_gone(ends: Ends) -> None:
    writing, reading = ends
    start = writing.put(np.ones((4, 4)))
    assert start is not None
    seen = reading.array(start, (4, 4), np.dtype(np.float64))
    cut = seen.reshape(-1)[3:7]
    del seen
    assert reading.take_unused() == []
    thread = threading.Thread(target=lambda array: None, args=(cut,))
    del cut
    thread.start()
    thread.join()
    del thread
    assert reading.take_unused() == [start]
    assert reading.take_unused() == []
    writing.free([start])
    assert writing.put(np.zeros(SIZE, np.uint8)) == 0


def test_nothing_of_the_block_before_is_seen(ends: Ends) -> None:
    writing, reading = ends
    start = writing.put(np.full(PAGE, 7, np.uint8))
    assert start is not None
    writing.free([start])
    assert writing.put(np.zeros(3, np.uint8)) == start
    seen = reading.array(start, (3,), np.dtype(np.uint8))
    assert seen.tolist() == [0, 0, 0]
    assert seen.nbytes == 3


def test_full_memory_takes_nothing_and_an_array_beyond_it_is_rejected(
    ends: Ends,
) -> None:
    writing, reading = ends
    assert writing.put(np.zeros(SIZE + 1, np.uint8)) is None
    with pytest.raises(TypeError):
        reading.array(SIZE - 4, (2,), np.dtype(np.float32))


def test_a_block_without_a_reader_is_given_back(ends: Ends) -> None:
    ends[1].skip(PAGE)
    assert ends[1].take_unused() == [PAGE]


def test_shared_memory_cannot_be_truncated() -> None:
    file = create_memory(SIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(file, 0)
    os.close(file)


ROOM = 16 * PAGE


@given(st.lists(st.one_of(st.integers(0, 6 * PAGE), st.just(None)), max_size=60), st.randoms(use_true_random=False))
def test_blocks_never_overlap_and_all_room_comes_back(steps: list[int | None], random: Random) -> None:
    """A number takes so many bytes, None gives some block back."""
    blocks = BlockAllocator(ROOM)
    taken: dict[int, int] = {}
    for step in steps:
        if step is None:
            if taken:
                start = random.choice(sorted(taken))
                blocks.give_back(start)
                del taken[start]
            continue
        begin = blocks.take(step)
        if begin is None:
            bounds = [0, *sorted(edge for start, end in taken.items() for edge in (start, end)), ROOM]
            gaps = [stop - -(-start // PAGE) * PAGE for start, stop in zip(bounds[::2], bounds[1::2], strict=True)]
            assert max(gaps) < max(step, 1)
            continue
        end = begin + max(step, 1)
        assert begin % PAGE == 0
        assert end <= ROOM
        assert all(end <= other or begin >= other_end for other, other_end in taken.items())
        taken[begin] = end
    for start in taken:
        blocks.give_back(start)
    assert blocks.take(ROOM) == 0


def test_low_addresses_first_and_neighbours_become_one() -> None:
    blocks = BlockAllocator(ROOM)
    first, second, third = (blocks.take(PAGE + 1) for _ in range(3))
    assert (first, second, third) == (0, 2 * PAGE, 4 * PAGE)
    assert blocks.take(ROOM) is None
    blocks.give_back(0)
    blocks.give_back(4 * PAGE)
    blocks.give_back(2 * PAGE)
    assert (blocks._taken, blocks._free) == ({}, [(0, ROOM)])
