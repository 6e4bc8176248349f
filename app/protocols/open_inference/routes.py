"""Method and path -> action, in the Open Inference Protocol's REST API."""

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
    """What a request asks for."""

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


#: These change what is served.
ADMINISTRATION = frozenset({Action.LOAD, Action.UNLOAD, Action.MEMORY_REGISTER, Action.MEMORY_UNREGISTER})

#: These are for operators: the former, and what watches the server.
_OF_OPERATORS = ADMINISTRATION | {
    Action.STATISTICS,
    Action.INDEX,
    Action.MEMORY_STATUS,
    Action.CUDA_STATUS,
    Action.CUDA_REGISTER,
    Action.CUDA_UNREGISTER,
}


#: What each needs. Whether the server lives and is ready is for everybody; what a region holds is nobody's model.
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

#: `name` is a region's.
_OF_REGIONS = frozenset(
    {
        Action.MEMORY_STATUS,
        Action.MEMORY_REGISTER,
        Action.MEMORY_UNREGISTER,
        Action.CUDA_STATUS,
        Action.CUDA_REGISTER,
        Action.CUDA_UNREGISTER,
    }
)


@dataclass(frozen=True, slots=True)
class Route:
    """`name` is the model's or the region's, empty if there is none; an empty `version` is the newest."""

    action: Action
    name: str = ""
    version: str = ""

    @property
    def need(self) -> Need:
        return Need(PERMISSIONS[self.action], "" if self.action in _OF_REGIONS else self.name)


class NoSuchRoute(Exception):
    """`allowed` are the methods that the path accepts; empty if there is no such path."""

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
    """Who a path, as sent, is for; of no path everyone."""
    path = without_needless_encoding(path)
    actions = {action for _, pattern, action in _ROUTES if pattern.fullmatch(path)}
    if actions & _OF_OPERATORS:
        return Audience.OPERATORS
    return Audience.CALLERS if Action.INFER in actions else Audience.EVERYONE
