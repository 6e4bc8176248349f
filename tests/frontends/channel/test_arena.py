import os
import threading

import numpy as np
import pytest

from app.frontends.channel.arena import PAGE, ReadingArena, WritingArena, create_memory

SIZE = 8 * PAGE


@pytest.fixture
def ends() -> tuple[WritingArena, ReadingArena]:
    file = create_memory(SIZE)
    made = WritingArena(file), ReadingArena(file)
    os.close(file)
    return made


def test_an_array_is_read_in_place_and_not_to_be_written(ends: tuple[WritingArena, ReadingArena]) -> None:
    writing, reading = ends
    array = np.arange(20, dtype=np.int32)[::2].reshape(2, 5)
    start = writing.put(array)
    assert start == 0
    seen = reading.array(start, array.shape, array.dtype)
    np.testing.assert_array_equal(seen, array)
    assert not seen.flags.writeable
    assert not seen.flags.owndata


def test_a_block_is_free_when_the_last_cut_of_it_is_gone(ends: tuple[WritingArena, ReadingArena]) -> None:
    writing, reading = ends
    start = writing.put(np.ones((4, 4)))
    assert start is not None
    seen = reading.array(start, (4, 4), np.dtype(np.float64))
    cut = seen.reshape(-1)[3:7]
    del seen
    assert reading.take_unread() == []
    thread = threading.Thread(target=lambda array: None, args=(cut,))
    del cut
    thread.start()
    thread.join()
    del thread
    assert reading.take_unread() == [start]
    assert reading.take_unread() == []
    writing.free([start])
    assert writing.put(np.zeros(SIZE, np.uint8)) == 0


def test_nothing_of_the_block_before_is_seen(ends: tuple[WritingArena, ReadingArena]) -> None:
    writing, reading = ends
    start = writing.put(np.full(PAGE, 7, np.uint8))
    assert start is not None
    writing.free([start])
    assert writing.put(np.zeros(3, np.uint8)) == start
    seen = reading.array(start, (3,), np.dtype(np.uint8))
    assert seen.tolist() == [0, 0, 0]
    assert seen.nbytes == 3


def test_a_full_arena_takes_nothing_and_an_array_beyond_it_is_refused(ends: tuple[WritingArena, ReadingArena]) -> None:
    writing, reading = ends
    assert writing.put(np.zeros(SIZE + 1, np.uint8)) is None
    with pytest.raises(TypeError):
        reading.array(SIZE - 4, (2,), np.dtype(np.float32))


def test_what_nobody_looks_at_is_given_back(ends: tuple[WritingArena, ReadingArena]) -> None:
    ends[1].skip(PAGE)
    assert ends[1].take_unread() == [PAGE]


def test_nobody_can_cut_the_memory_short() -> None:
    file = create_memory(SIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(file, 0)
    os.close(file)
