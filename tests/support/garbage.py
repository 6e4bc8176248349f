"""What the garbage collector does, and what would stay in memory without it."""

import gc
from collections import Counter
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


@contextmanager
def garbage() -> Iterator[Counter[str]]:
    """Counts, by kind, what the block leaves that only the collector can free; filled at its end.

    What was there before does not count, also if it becomes garbage meanwhile: threads of other tests may let go of it.
    So it is frozen at once: to collect it would take a second where many tests have run.
    """
    found = Counter[str]()
    gc.freeze()
    with no_collection():
        try:
            yield found
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
        finally:
            gc.set_debug(0)
            gc.unfreeze()
        found.update(type(each).__qualname__ for each in gc.garbage)
        gc.garbage.clear()
