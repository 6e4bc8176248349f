"""The routes of the Open Inference Protocol's REST API: method and path -> action."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from urllib.parse import unquote

from app.access.rules import Need, Permission
from app.transports.http.audience import Audience
from app.transports.paths import without_needless_encoding


class Action(Enum):
    """The operation that a request asks for."""

    SERVER = auto()
    LIVE = auto()
    READY = auto()
    METADATA = auto()
    MODEL_READY = auto()
    INFER = auto()
    CONFIG = auto()
    STATISTICS = auto()
    INDEX = auto()
    LOAD = auto()
    UNLOAD = auto()
    MEMORY_STATUS = auto()
    MEMORY_REGISTER = auto()
    MEMORY_UNREGISTER = auto()
    CUDA_STATUS = auto()
    CUDA_REGISTER = auto()
    CUDA_UNREGISTER = auto()


#: Actions that change what is served.
ADMINISTRATION = frozenset({Action.LOAD, Action.UNLOAD, Action.MEMORY_REGISTER, Action.MEMORY_UNREGISTER})

#: Actions of shared memory: `name` is a region's, so they concern no model.
_OF_REGIONS = frozenset(action for action in Action if action.name.startswith(("MEMORY_", "CUDA_")))

#: Actions of operators.
_OF_OPERATORS = ADMINISTRATION | _OF_REGIONS | {Action.STATISTICS, Action.INDEX}

#: The permission that an action needs; None for probes, which need no credential.
PERMISSIONS: Mapping[Action, Permission | None] = {
    Action.LIVE: None,
    Action.READY: None,
    Action.INFER: Permission.INFER,
    Action.SERVER: Permission.METADATA,
    Action.METADATA: Permission.METADATA,
    Action.MODEL_READY: Permission.METADATA,
    Action.CONFIG: Permission.METADATA,
    Action.STATISTICS: Permission.METADATA,
    Action.INDEX: Permission.METADATA,
    Action.MEMORY_STATUS: Permission.METADATA,
    Action.CUDA_STATUS: Permission.METADATA,
    Action.LOAD: Permission.ADMINISTRATION,
    Action.UNLOAD: Permission.ADMINISTRATION,
    Action.MEMORY_REGISTER: Permission.ADMINISTRATION,
    Action.MEMORY_UNREGISTER: Permission.ADMINISTRATION,
    Action.CUDA_REGISTER: Permission.ADMINISTRATION,
    Action.CUDA_UNREGISTER: Permission.ADMINISTRATION,
}


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a request.

    Attributes:
        name: of the model or the region; empty if the path has none.
        version: empty for the newest.
    """

    action: Action
    name: str = ""
    version: str = ""

    @property
    def need(self) -> Need:
        return Need(PERMISSIONS[self.action], "" if self.action in _OF_REGIONS else self.name)


class NoSuchRoute(Exception):
    """A path is unknown, or does not accept the method. `allowed`: the methods of the path; empty if it is unknown."""

    def __init__(self, method: str, path: str, allowed: Collection[str]) -> None:
        super().__init__(f"{'Method not allowed' if allowed else 'Not found'}: {method} {path[:256]}")
        self.allowed = allowed


_MODEL = r"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?"
_REGION = r"/v2/systemsharedmemory(?:/region/(?P<name>[^/]+))?"
_CUDA_REGION = r"/v2/cudasharedmemory(?:/region/(?P<name>[^/]+))?"

#: The first match applies.
_ROUTES = tuple(
    (method, re.compile(pattern + "/?"), action)
    for method, pattern, action in (
        ("POST", _MODEL + "/infer", Action.INFER),
        ("GET", "/v2", Action.SERVER),
        ("GET", "/v2/health/live", Action.LIVE),
        ("GET", "/v2/health/ready", Action.READY),
        ("GET", "/v2/models/stats", Action.STATISTICS),
        ("GET", _MODEL + "/stats", Action.STATISTICS),
        ("GET", _MODEL + "/ready", Action.MODEL_READY),
        ("GET", _MODEL + "/config", Action.CONFIG),
        ("GET", _MODEL, Action.METADATA),
        ("POST", "/v2/repository/index", Action.INDEX),
        ("POST", "/v2/repository/models/(?P<name>[^/]+)/load", Action.LOAD),
        ("POST", "/v2/repository/models/(?P<name>[^/]+)/unload", Action.UNLOAD),
        ("GET", _REGION + "/status", Action.MEMORY_STATUS),
        ("POST", "/v2/systemsharedmemory/region/(?P<name>[^/]+)/register", Action.MEMORY_REGISTER),
        ("POST", _REGION + "/unregister", Action.MEMORY_UNREGISTER),
        ("GET", _CUDA_REGION + "/status", Action.CUDA_STATUS),
        ("POST", "/v2/cudasharedmemory/region/(?P<name>[^/]+)/register", Action.CUDA_REGISTER),
        ("POST", _CUDA_REGION + "/unregister", Action.CUDA_UNREGISTER),
    )
)


@lru_cache(maxsize=1024)
def find_route(method: str, path: str) -> Route:
    """The route of a request. Raises NoSuchRoute.

    Args:
        path: as sent: percent-encoded, without the query.
    """
    plain = without_needless_encoding(path)
    for wanted, pattern, action in _ROUTES:
        found = pattern.fullmatch(plain)
        if found is not None and method == wanted:
            named = found.groupdict()
            return Route(action, unquote(named.get("name") or ""), unquote(named.get("version") or ""))
    raise NoSuchRoute(method, path, methods_of(path))


def methods_of(path: str) -> frozenset[str]:
    """The methods that a path, as sent, accepts; empty if there is no such path."""
    path = without_needless_encoding(path)
    return frozenset(method for method, pattern, _ in _ROUTES if pattern.fullmatch(path))


def audience_of(path: str) -> Audience:
    """The audience of a path, as sent; EVERYONE if there is no such path."""
    path = without_needless_encoding(path)
    actions = {action for _, pattern, action in _ROUTES if pattern.fullmatch(path)}
    if actions & _OF_OPERATORS:
        return Audience.OPERATORS
    return Audience.CALLERS if Action.INFER in actions else Audience.EVERYONE
