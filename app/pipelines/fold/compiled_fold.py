"""fold.c, which does what a batch of nodes needs in one pass instead of by dozens of numpy's calls; hatch_build.py
compiles it.

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
    """As in fold.c: where its arrays are, and how long."""

    _fields_ = (
        *[(name, POINTER) for name in ("key", "operation", "missing", "parent", "children")],
        ("rows", NUMBER),
        ("slots", NUMBER),
        *[(name, POINTER) for name in ("left", "times", "ages")],
        ("requests", NUMBER),
    )


class _Charges(ctypes.Structure):
    """As in fold.c: where the arrays of charges.py are, and how long."""

    _fields_ = (
        *[(name, POINTER) for name in ("entered_s", "begun_s", "seconds", "largest", "nodes")],
        ("requests", NUMBER),
    )


_OF_AGENDA = ctypes.POINTER(_Agenda)
_OF_CHARGES = ctypes.POINTER(_Charges)
_SECONDS = ctypes.c_double
_FUNCTIONS = {
    "ferry_fold_enter_1": (
        _OF_AGENDA, NUMBER, POINTER, POINTER, POINTER, POINTER, NUMBER, POINTER, NUMBER, NUMBER, POINTER, POINTER,
        POINTER, POINTER
    ),
    "ferry_fold_choose_1": (_OF_AGENDA, POINTER, NUMBER, NUMBER, NUMBER, POINTER, POINTER),
    "ferry_fold_take_1": (_OF_AGENDA, POINTER, NUMBER, POINTER),
    "ferry_fold_done_1": (_OF_AGENDA, POINTER, NUMBER, POINTER),
    "ferry_fold_charge_1": (_OF_CHARGES, POINTER, NUMBER, _SECONDS, NUMBER, _SECONDS, _SECONDS),
}  # fmt: skip


@cache
def library() -> ctypes.CDLL | None:
    """None if it was not compiled."""
    return load(LIBRARY, _FUNCTIONS, "requests with trees take more of the event loop", holds_gil=True)


class Entered(NamedTuple):
    """A request whose trees are in the agenda.

    Attributes:
        number: its own.
        starts: the number of its start nodes.
        levels: of its trees, that is, the calls that they take at least.
        rows, roots: of its nodes, and of those without a parent.
        ready: the keys of nodes that are ready at once.
    """

    number: int
    starts: int
    levels: int
    rows: Numbers
    roots: Numbers
    ready: Numbers


class CompiledFold:
    """The functions of fold.c for one agenda, whose arrays `point_to` tells.

    Raise IndexError: a key or row is none of this agenda.
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
        """These arrays of the agenda are used from now on, by the names of their fields."""
        self._held |= arrays  # they stay in memory, while fold.c may read them
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
        """Checks the trees of requests, and puts them into the agenda; None, and nothing is done, if one is wrong.

        Args:
            asked: of each request its number, and how many start nodes and inner nodes it has.
            children: [inner nodes of all, slots]
            types: [inner nodes of all] the operation of each; None if all have operation 0.
            allowed: [operations] the slots that each has.
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
            end, roots = node + starts + own, found[node : node + root_count].copy()  # these are kept longer
            ready_keys = found[ready : ready + ready_count]
            entered.append(Entered(number, starts, levels, rows[node:end], roots, ready_keys))
            node, ready = end, ready + own
        return entered

    def choose(self, pool: Numbers, count: int, now: int) -> tuple[Numbers, Numbers, int]:
        """Of sorted keys those whose turn it is, which are charged; the others; and how far ahead the last one is."""
        size = len(pool)
        chosen = np.empty(2 * size, np.intp)
        at = _address(chosen)
        last = self._choose(self._at, _address(pool), size, count, now, at, at + 8 * size)
        if last < 0:
            raise IndexError(f"expected keys of nodes, got {pool}")
        return chosen[:count], chosen[count:size].copy(), last

    def take(self, keys: Numbers) -> Numbers:
        """Nodes go into a call: [2 + slots, nodes], their requests, their rows, and by slot their children's."""
        taken = np.empty((2 + self._slots, len(keys)), np.intp)
        if len(keys) and self._take(self._at, _address(keys), len(keys), _address(taken)):
            raise IndexError(f"expected keys of nodes, got {keys}")
        return taken

    def done(self, rows: Numbers) -> tuple[Numbers, list[int]]:
        """The keys of nodes that become ready when these have their states, and the requests that are complete."""
        if not (count := len(rows)):
            return rows, []
        ready = np.empty(1 + 2 * count, np.intp)
        found = self._done(self._at, _address(rows), count, _address(ready))
        if found < 0:
            raise IndexError(f"expected rows of nodes, got {rows}")
        complete = ready[1 + count : 1 + count + int(ready[0])].tolist()
        complete.sort()
        return ready[1 : 1 + found], complete


class CompiledCharges:
    """The function of fold.c for what calls took of requests, whose arrays `point_to` tells."""

    __slots__ = ("_at", "_charge", "_charges", "_held")
    _charges: _Charges

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._charge = loaded.ferry_fold_charge_1
        self._held: Sequence[Array] = ()

    def point_to(self, entered_s: Array, begun_s: Array, seconds: Array, largest: Numbers) -> None:
        """These arrays, by the numbers of requests, are used from now on."""
        nodes = np.zeros(len(largest), np.intp)
        self._held = entered_s, begun_s, seconds, largest, nodes  # they stay in memory, while fold.c may use them
        self._charges = _Charges(*[_address(array) for array in self._held], len(largest))
        self._at = ctypes.byref(self._charges)

    def charge(self, requests: Numbers, seconds: float, rows: int, share_s: float, least_s: float) -> None:
        """A call is over; see `Charges.charge`. Raises IndexError: one of the numbers is none of a request."""
        count = len(requests)
        if count and self._charge(self._at, _address(requests), count, seconds, rows, share_s, least_s):
            raise IndexError(f"expected numbers of requests, got {requests}")


def _address(array: Array) -> int:
    """Where its elements are; `array.ctypes.data` takes 1.2 us more (measured).

    Raises ValueError or TypeError: it is empty, read-only or not contiguous.
    """
    return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]  # numpy's stubs hide its buffer
