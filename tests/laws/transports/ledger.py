"""The counters and registries of a whole server, by walking its objects: what a law compares before and after."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

#: Attributes that remember for ever, within bounds of their own, by class; "*": all of it.
GROWS = {
    "FastPath": {"_heads"},  # the heads of requests
    "KnownHeads": {"*"},  # likewise
    "ServerFields": {"_of"},  # of the server
    "DeviceSlots": {"_busy_s", "_busy_hardware"},  # how long each device was busy
}


def ledger(*roots: object, grows: Mapping[str, set[str]] = GROWS) -> dict[str, int]:
    """Every whole number, and the length of every container, of Ferry's objects that can be reached from these.

    By the path of attributes to it; of several objects in one container the numbers are added.
    """
    found: dict[str, int] = {}
    seen: set[int] = set()
    left: deque[tuple[str, object]] = deque((type(root).__name__, root) for root in roots)
    while left:
        path, one = left.popleft()
        if isinstance(one, bool) or one is None:
            continue
        if isinstance(one, int):
            found[path] = found.get(path, 0) + one
            continue
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict | set | frozenset | list | tuple | deque):
            found[f"{path}#"] = found.get(f"{path}#", 0) + len(one)
            left.extend((f"{path}[]", each) for each in (one.values() if isinstance(one, dict) else one))
        else:
            left.extend((f"{path}.{name}", value) for name, value in _parts(one, grows))
    return found


def _parts(one: object, grows: Mapping[str, set[str]]) -> Iterator[tuple[str, object]]:
    if isinstance(one, partial):
        yield from (("func", one.func), ("args", one.args), ("keywords", one.keywords))
    elif isinstance(one, MethodType):
        yield "self", one.__self__
    elif isinstance(one, FunctionType):
        for number, cell in enumerate(one.__closure__ or ()):
            yield f"cell{number}", cell.cell_contents
    elif type(one).__module__.startswith("app.") and not isinstance(one, type):
        left_out = grows.get(type(one).__name__, set())
        for name in {*getattr(one, "__dict__", {}), *_slots(type(one))} - left_out:
            if "*" not in left_out and hasattr(one, name):
                yield name, getattr(one, name)


def _slots(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        yield from ((slots,) if isinstance(slots, str) else slots)


def timers() -> list[str]:
    """What the transports still wait for. (A model's deadlines pass by themselves: app/batching/deadlines.py.)"""
    loop: Any = asyncio.get_running_loop()
    waiting = [each._callback for each in loop._scheduled if not each.cancelled()]
    owners = [getattr(each, "__self__", each) for each in waiting]
    return sorted(repr(each) for each in owners if type(each).__module__.startswith("app.transports"))
