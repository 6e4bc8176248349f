"""What entry points compose, without serving: one process, the engine of frontends, and a frontend.

The values of a composed process are read off its objects: a place is `Class.attribute`, and has a value in each object
of that class. So a test can say where a setting arrives, whatever passes it on.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import pytest

from app.config.settings import Settings
from app.frontends.engine import engine_process
from app.frontends.frontend import frontend_process
from app.frontends.process_arguments import ProcessArguments
from app.server import single_process
from app.server.server import Server
from app.transports.http1.uvicorn_adapter import DrainingServer

#: The kinds of processes.
ONE, ENGINE, FRONTEND = "one process", "the engine", "a frontend"

#: By place, the values in all objects, as text.
Places = Mapping[str, Counter[str]]

_VALUES = (int, float, str, bytes, type(None), Path, frozenset, Enum, np.dtype)


def composed(kind: str, values: Settings) -> Places:  # noqa: C901 - one case for each kind
    """The places of a process of this kind, with its models loaded, as its entry point composes it."""
    found: list[Places] = []

    async def begin(server: Server, roots: Mapping[str, object]) -> None:
        await server.start()
        assert server._starting is not None
        await server._starting
        found.append(places(roots))
        await server.stop()

    def run(draining: Any, sockets: object) -> None:
        server = draining._server
        roots = {"server": draining, "logged": logged}
        if isinstance(server, Server):
            asyncio.run(begin(server, roots))
        else:
            found.append(places(roots))
            server.stopped = True
        for bound in [each for port in draining._ports for each in port.sockets]:
            bound.close()

    async def run_engine(server: Server, listener: socket.socket) -> int:
        await begin(server, {"server": server, "logged": logged})
        return 0

    logged: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(DrainingServer, "run", run)
        patch.setattr(engine_process, "run_engine", run_engine)
        for module in (single_process, engine_process, frontend_process):
            patch.setattr(module, "configure", lambda level, form: logged.update(level=level, form=form))
            if hasattr(module, "keep_freed_memory"):
                patch.setattr(module, "keep_freed_memory", lambda: None)
        patch.setattr(single_process, "raise_limit", lambda: None)
        patch.setattr(frontend_process, "spare_from_collection", lambda: None)
        if kind == ONE:
            assert single_process.serve(values) == 0
        elif kind == ENGINE:
            with socket.socket(socket.AF_UNIX) as listener:
                assert engine_process.serve(ProcessArguments(values, [listener.detach()])) == 0
        else:
            frontend_process.serve(ProcessArguments(values, [], f"{folder}/engine"))
    (one,) = found
    return one


def places(roots: Mapping[str, object]) -> Places:
    """All values that can be reached from these objects."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seen: dict[int, object] = {}  # it keeps them, so that no number is used again
    waiting = deque(roots.items())
    while waiting:
        place, each = waiting.popleft()
        if isinstance(each, _VALUES):
            found[place][repr(each)] += 1
        elif id(each) not in seen and not isinstance(each, Settings | type):
            seen[id(each)] = each
            waiting.extend(_parts(place, each))
    return found


def _parts(place: str, each: Any) -> Iterator[tuple[str, object]]:  # noqa: C901 - one case for each kind of object
    kind = type(each)
    if isinstance(each, Mapping):
        for key, value in list(each.items()):
            yield f"{place}.keys", key
            yield place, value
    elif isinstance(each, tuple) and hasattr(each, "_fields"):
        yield from [(f"{kind.__name__}.{name}", getattr(each, name)) for name in each._fields]
    elif isinstance(each, list | tuple | set | deque):
        yield from [(place, value) for value in list(each)]
    elif isinstance(each, socket.socket):
        yield "socket", each.getsockname()
    elif isinstance(each, MethodType):
        yield place, each.__self__
    elif isinstance(each, FunctionType):
        if (each.__module__ or "").startswith("app."):
            yield from [(place, cell.cell_contents) for cell in each.__closure__ or ()]
    elif isinstance(each, partial):
        yield from [(place, value) for value in (each.func, *each.args)]
        yield from [(f"{place}.{name}", value) for name, value in each.keywords.items()]
    elif kind.__module__.startswith(("app.", "tests.", "uvicorn.config")):
        yield from [(f"{kind.__name__}.{name}", value) for name, value in _attributes(each)]


def _attributes(each: object) -> Iterator[tuple[str, object]]:
    yield from getattr(each, "__dict__", {}).items()
    for kind in type(each).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(each, name):
                yield name, getattr(each, name)
