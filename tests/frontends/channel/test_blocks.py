from hypothesis import given
from hypothesis import strategies as st

from app.frontends.channel.arena import PAGE, Blocks

SIZE = 16 * PAGE


@given(st.lists(st.one_of(st.integers(0, 6 * PAGE), st.just(None)), max_size=60), st.randoms(use_true_random=False))
def test_blocks_never_overlap_and_all_room_comes_back(steps: list[int | None], random) -> None:  # type: ignore[no-untyped-def]
    """A number takes so many bytes, None gives some block back."""
    blocks = Blocks(SIZE)
    taken: dict[int, int] = {}
    for step in steps:
        if step is None:
            if taken:
                start = random.choice(sorted(taken))
                blocks.give(start)
                del taken[start]
            continue
        begin = blocks.take(step)
        if begin is None:
            assert step > 0
            continue
        end = begin + max(step, 1)
        assert begin % PAGE == 0
        assert end <= SIZE
        assert all(end <= other or begin >= other_end for other, other_end in taken.items())
        taken[begin] = end
    for start in taken:
        blocks.give(start)
    assert blocks.take(SIZE) == 0


def test_low_addresses_first_and_neighbours_become_one() -> None:
    blocks = Blocks(SIZE)
    first, second, third = (blocks.take(PAGE + 1) for _ in range(3))
    assert (first, second, third) == (0, 2 * PAGE, 4 * PAGE)
    assert blocks.take(SIZE) is None
    blocks.give(0)
    blocks.give(4 * PAGE)
    blocks.give(2 * PAGE)
    assert repr(blocks) == f"<Blocks 0 taken, free: [(0, {SIZE})]>"
