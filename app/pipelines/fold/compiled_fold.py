"""fold.c, which handles the nodes of a batch in one pass in place of dozens of numpy calls; hatch_build.py compiles it.

Where it was not compiled, or declines, numpy does the same: test_compiled_fold.py compares.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.core.compiled.library import NUMBER, POINTER, load
from app.core.inference import Array
from app.pipelines.fold.forest import Numbers

LIBRARY = Path(__file__).with_name("fold.so")


class _Agenda(ctypes.Structure):
    """The struct `agenda` of fold.c: the addresses and lengths of an Agenda's arrays."""

    _fields_ = (
        *[(name, POINTER) for name in ("key", "operation", "missing", "parent", "children")],
        ("rows", NUMBER),
        ("slots", NUMBER),
        *[(name, POINTER) for name in ("left", "times", "ages")],
        ("requests", NUMBER),
    )


class _FoldCosts(ctypes.Structure):
    """The struct `fold_costs` of fold.c: the addresses and length of a FoldCosts' arrays."""

    _fields_ = (
        *[(name, POINTER) for name in ("entered_s", "begun_s", "seconds", "largest", "nodes")],
        ("requests", NUMBER),
    )


_OF_AGENDA = ctypes.POINTER(_Agenda)
_OF_FOLD_COSTS = ctypes.POINTER(_FoldCosts)
_SECONDS = ctypes.c_double
_FUNCTIONS = {
    "ferry_fold_enter_1": (
        _OF_AGENDA, NUMBER, POINTER, POINTER, POINTER, POINTER, NUMBER, POINTER, NUMBER, NUMBER, POINTER, POINTER,
        POINTER, POINTER
    ),
    "ferry_fold_choose_1": (_OF_AGENDA, POINTER, NUMBER, NUMBER, NUMBER, POINTER, POINTER),
    "ferry_fold_take_1": (_OF_AGENDA, POINTER, NUMBER, POINTER),
    "ferry_fold_done_1": (_OF_AGENDA, POINTER, NUMBER, POINTER),
    "ferry_fold_charge_1": (_OF_FOLD_COSTS, POINTER, NUMBER, _SECONDS, NUMBER, _SECONDS, _SECONDS),
}  # fmt: skip


@cache
def library() -> ctypes.CDLL | None:
    """The library; None if it was not compiled."""
    return load(LIBRARY, _FUNCTIONS, "requests with trees take more of the event loop", holds_gil=True)


class Entered(NamedTuple):
    """A request whose trees are in the agenda.

    Attributes:
        number: the request's number.
        starts: the number of start nodes.
        levels: of the trees, which is the least number of calls.
        rows, roots: the rows of all nodes, and of nodes without a parent.
        ready: the keys of nodes that are ready at once.
    """

    number: int
    starts: int
    levels: int
    rows: Numbers
    roots: Numbers
    ready: Numbers


class CompiledFold:
    """The functions of fold.c for one agenda, whose arrays `point_to` sets.

    They raise IndexError: a key or row is not of this agenda.
    """

    __slots__ = ("_agenda", "_at", "_choose", "_done", "_enter", "_held", "_slots", "_take")

    def __init__(self, loaded: ctypes.CDLL, slots: int) -> None:
        self._agenda = _Agenda(slots=slots)
        self._at = ctypes.byref(self._agenda)
        self._slots = slots
        self._held: dict[str, Array] = {}
        self._enter, self._choose = loaded.ferry_fold_enter_1, loaded.ferry_fold_choose_1
        self._take, self._done = loaded.ferry_fold_take_1, loaded.ferry_fold_done_1

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
    ) -> Sequence[Entered] | None:  # fmt: skip
        """Check the trees of requests, and put them into the agenda; None, and nothing is changed, if one is wrong.

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
        entered, node, ready = list[Entered](), 0, nodes
        for (number, starts, own), (levels, root_count, ready_count) in zip(asked, told.tolist(), strict=True):
            end, roots = node + starts + own, found[node : node + root_count].copy()  # kept longer than `found`
            ready_keys = found[ready : ready + ready_count]
            entered.append(Entered(number, starts, levels, rows[node:end], roots, ready_keys))
            node, ready = end, ready + own
        return entered

    def choose(self, pool: Numbers, count: int, now: int) -> tuple[Numbers, Numbers, int]:
        """Sorted keys, split: the next `count` by fair order, charged; the rest; and the distance of the last one."""
        size = len(pool)
        chosen = np.empty(2 * size, np.intp)
        at = _address(chosen)
        last = self._choose(self._at, _address(pool), size, count, now, at, at + 8 * size)
        if last < 0:
            raise IndexError(f"expected keys of nodes, got {pool}")
        return chosen[:count], chosen[count:size].copy(), last

    def take(self, keys: Numbers) -> Numbers:
        """Put nodes into a call: [2 + slots, nodes] their requests, their rows, and by slot their children's rows."""
        taken = np.empty((2 + self._slots, len(keys)), np.intp)
        if len(keys) and self._take(self._at, _address(keys), len(keys), _address(taken)):
            raise IndexError(f"expected keys of nodes, got {keys}")
        return taken

    def done(self, rows: Numbers) -> tuple[Numbers, list[int]]:
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


class CompiledFoldCosts:
    """The function of fold.c that charges requests, whose arrays `point_to` sets."""

    __slots__ = ("_at", "_charge", "_costs", "_held")
    _costs: _FoldCosts

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._charge = loaded.ferry_fold_charge_1
        self._held: Sequence[Array] = ()

    def point_to(self, entered_s: Array, begun_s: Array, seconds: Array, largest: Numbers) -> None:
        """Use these arrays, by the numbers of requests, from now on."""
        nodes = np.zeros(len(largest), np.intp)
        self._held = entered_s, begun_s, seconds, largest, nodes  # keeps them in memory while fold.c may use them
        self._costs = _FoldCosts(*[_address(array) for array in self._held], len(largest))
        self._at = ctypes.byref(self._costs)

    def charge(self, requests: Numbers, seconds: float, rows: int, share_s: float, least_s: float) -> None:
        """Charge the requests of a call; see `FoldCosts.charge`. Raises IndexError: a number is not of a request."""
        count = len(requests)
        if count and self._charge(self._at, _address(requests), count, seconds, rows, share_s, least_s):
            raise IndexError(f"expected numbers of requests, got {requests}")


def _address(array: Array) -> int:
    """The address of the array's elements; `array.ctypes.data` takes 1.2 us more (measured).

    Raises ValueError or TypeError: the array is empty, read-only or not contiguous.
    """
    return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]  # numpy's stubs hide its buffer
