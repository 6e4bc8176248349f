"""fold.c, which checks and enters the trees of a turn, and ends the nodes of a call; hatch_build.py compiles it.

Where it was not compiled, or declines, numpy does the same: test_compiled_fold.py compares. The choice of nodes, their
gather and their costs are numpy's: one pass in C would save 15 us of a call of 1,150 us (measured).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from app.core.compiled.library import NUMBER, POINTER, load
from app.core.inference import Array
from app.pipelines.fold.forest import Numbers
from app.pipelines.fold.forests import Reserved

LIBRARY = Path(__file__).with_name("fold.so")


class _Agenda(ctypes.Structure):
    """The struct `agenda` of fold.c: the addresses and lengths of an Agenda's arrays."""

    _fields_ = (
        *[(name, POINTER) for name in ("key", "operation", "missing", "parent", "children")],
        ("rows", NUMBER),
        ("slots", NUMBER),
        ("left", POINTER),
        ("requests", NUMBER),
    )


_OF_AGENDA = ctypes.POINTER(_Agenda)
_FUNCTIONS = {
    "ferry_fold_enter_2": (
        _OF_AGENDA, NUMBER, POINTER, POINTER, POINTER, POINTER, NUMBER, POINTER, NUMBER, NUMBER, POINTER, POINTER,
        POINTER, POINTER
    ),
    "ferry_fold_done_2": (_OF_AGENDA, POINTER, NUMBER, POINTER),
}  # fmt: skip


@cache
def library() -> ctypes.CDLL | None:
    """The library; None if it was not compiled."""
    return load(LIBRARY, _FUNCTIONS, "requests with trees take more of the event loop", holds_gil=True)


class CompiledFold:
    """The functions of fold.c for one agenda, whose arrays `point_to` sets.

    `done` raises IndexError: a row is not of this agenda.
    """

    __slots__ = ("_agenda", "_at", "_done", "_enter", "_held")

    def __init__(self, loaded: ctypes.CDLL, slots: int) -> None:
        self._agenda = _Agenda(slots=slots)
        self._at = ctypes.byref(self._agenda)
        self._held: dict[str, Array] = {}
        self._enter, self._done = loaded.ferry_fold_enter_2, loaded.ferry_fold_done_2

    def point_to(self, **arrays: Numbers) -> None:
        """Use these arrays of the agenda, given by the names of their fields, from now on."""
        self._held |= arrays  # keeps them in memory while fold.c may read them
        for name, array in arrays.items():
            setattr(self._agenda, name, _address(array))
        if "key" in arrays:
            self._agenda.rows = len(arrays["key"])
        if "left" in arrays:
            self._agenda.requests = len(arrays["left"])

    def enter(
        self, asked: Sequence[tuple[int, int, int]], children: Numbers, types: Numbers | None, allowed: Numbers,
        rows: Numbers,
    ) -> Sequence[tuple[Reserved, Numbers]] | None:  # fmt: skip
        """Check the trees of requests, and put them into the agenda; None, and nothing is changed, if one is wrong.

        Each gets its reservation, and the keys of nodes that are ready at once.

        Args:
            asked: for each request its number, and the numbers of its start nodes and inner nodes.
            children: [inner nodes of all, slots]
            types: [inner nodes of all] their operations; None if all have operation 0.
            allowed: [operations] the slots of each operation.
            rows: [nodes of all] of the arena.
        """
        count, inner, nodes = len(asked), len(children), len(rows)
        table = np.array(asked, np.intp)
        told, found, work = np.empty((count, 3), np.intp), *np.empty((2, nodes + inner), np.intp)
        at = _address(found)
        declined = self._enter(
            self._at, count, _address(table), _address(children), None if types is None else _address(types),
            _address(allowed), len(allowed), _address(rows), nodes, inner, _address(told), at, at + 8 * nodes,
            _address(work)
        )  # fmt: skip
        if declined:
            return None
        entered, node, ready = list[tuple[Reserved, Numbers]](), 0, nodes
        for (number, starts, own), (levels, root_count, ready_count) in zip(asked, told.tolist(), strict=True):
            end, roots = node + starts + own, found[node : node + root_count]
            # Copies: a request that ends late would keep the arrays of all others.
            reserved = Reserved(starts, levels, rows[node:end].copy(), roots.copy(), number)
            entered.append((reserved, found[ready : ready + ready_count].copy()))
            node, ready = end, ready + own
        return entered

    def done(self, rows: Numbers) -> tuple[Numbers, Sequence[int]]:
        """End nodes with written states: the keys of nodes that become ready, and the requests that are complete."""
        if not (count := len(rows)):
            return rows, []
        ready = np.empty(1 + 2 * count, np.intp)
        found = self._done(self._at, _address(rows), count, _address(ready))
        if found < 0:
            raise IndexError(f"expected rows of nodes, got {rows}")
        complete = ready[1 + count : 1 + count + int(ready[0])].tolist()
        complete.sort()
        return ready[1 : 1 + found], complete


def _address(array: Array) -> int:
    """The address of the array's elements; `array.ctypes.data` takes 1.2 us more (measured).

    Raises ValueError or TypeError: the array is empty, read-only or not contiguous.
    """
    return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]  # numpy's stubs hide its buffer
