"""What the garbage collector does, and what would stay in memory without it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[list[int]]:
    """While the block runs nothing is collected but by order; yields the generations of which that was ordered."""
    ordered: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            ordered.append(info["generation"])

    gc.collect()
    gc.disable()
    gc.callbacks.append(note)
    try:
        yield ordered
    finally:
        gc.callbacks.remove(note)
        gc.enable()


def alive(kind: type) -> int:
    """How many objects of a type there are, garbage included."""
    return sum(isinstance(each, kind) for each in gc.get_objects())
