"""The routes of the Open Inference Protocol's REST API: method and path -> action."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from urllib.parse import unquote

from app.access.rules import Need, Permission
from app.transports.http.audience import Audience
from app.transports.paths import without_needless_encoding

_MODEL = r"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?"
_REGION = r"/v2/systemsharedmemory(?:/region/(?P<name>[^/]+))?"
_CUDA_REGION = r"/v2/cudasharedmemory(?:/region/(?P<name>[^/]+))?"


class Action(Enum):
    """The operation that a request asks for: its method, its path, and the permission that it needs.

    The first path that matches applies. Probes need no credential: their permission is None.
    """

    INFER = "POST", _MODEL + "/infer", Permission.INFER
    SERVER = "GET", "/v2", Permission.METADATA
    LIVE = "GET", "/v2/health/live", None
    READY = "GET", "/v2/health/ready", None
    STATISTICS = "GET", rf"(?:/v2/models|{_MODEL})/stats", Permission.METADATA
    MODEL_READY = "GET", _MODEL + "/ready", Permission.METADATA
    CONFIG = "GET", _MODEL + "/config", Permission.METADATA
    METADATA = "GET", _MODEL, Permission.METADATA
    INDEX = "POST", "/v2/repository/index", Permission.METADATA
    LOAD = "POST", "/v2/repository/models/(?P<name>[^/]+)/load", Permission.ADMINISTRATION
    UNLOAD = "POST", "/v2/repository/models/(?P<name>[^/]+)/unload", Permission.ADMINISTRATION
    MEMORY_STATUS = "GET", _REGION + "/status", Permission.METADATA
    MEMORY_REGISTER = "POST", "/v2/systemsharedmemory/region/(?P<name>[^/]+)/register", Permission.ADMINISTRATION
    MEMORY_UNREGISTER = "POST", _REGION + "/unregister", Permission.ADMINISTRATION
    CUDA_STATUS = "GET", _CUDA_REGION + "/status", Permission.METADATA
    CUDA_REGISTER = "POST", "/v2/cudasharedmemory/region/(?P<name>[^/]+)/register", Permission.ADMINISTRATION
    CUDA_UNREGISTER = "POST", _CUDA_REGION + "/unregister", Permission.ADMINISTRATION

    def __init__(self, method: str, path: str, permission: Permission | None) -> None:
        self.method = method
        self.path = re.compile(f"{path}/?")
        self.permission = permission


#: Actions that change what is served.
ADMINISTRATION = frozenset({Action.LOAD, Action.UNLOAD, Action.MEMORY_REGISTER, Action.MEMORY_UNREGISTER})

#: Actions of shared memory: `name` is a region's, so they concern no model.
_OF_REGIONS = frozenset(action for action in Action if action.name.startswith(("MEMORY_", "CUDA_")))

#: Actions of operators.
_OF_OPERATORS = ADMINISTRATION | _OF_REGIONS | {Action.STATISTICS, Action.INDEX}


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
        return Need(self.action.permission, "" if self.action in _OF_REGIONS else self.name)


class NoSuchRoute(Exception):
    """A path is unknown, or does not accept the method. `allowed`: the methods of the path; empty if it is unknown."""

    def __init__(self, method: str, path: str, allowed: Collection[str]) -> None:
        super().__init__(f"{'Method not allowed' if allowed else 'Not found'}: {method} {path[:256]}")
        self.allowed = allowed


@lru_cache(maxsize=1024)
def find_route(method: str, path: str) -> Route:
    """The route of a request. Raises NoSuchRoute.

    Args:
        path: as sent: percent-encoded, without the query.
    """
    plain = without_needless_encoding(path)
    for action in Action:
        found = action.path.fullmatch(plain)
        if found is not None and method == action.method:
            named = found.groupdict()
            return Route(action, unquote(named.get("name") or ""), unquote(named.get("version") or ""))
    raise NoSuchRoute(method, path, methods_of(path))


def methods_of(path: str) -> frozenset[str]:
    """The methods that a path, as sent, accepts; empty if there is no such path."""
    path = without_needless_encoding(path)
    return frozenset(action.method for action in Action if action.path.fullmatch(path))


def audience_of(path: str) -> Audience:
    """The audience of a path, as sent; EVERYONE if there is no such path."""
    path = without_needless_encoding(path)
    actions = {action for action in Action if action.path.fullmatch(path)}
    if actions & _OF_OPERATORS:
        return Audience.OPERATORS
    return Audience.CALLERS if Action.INFER in actions else Audience.EVERYONE
