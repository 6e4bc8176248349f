"""The routes of TensorFlow Serving's REST API: method and URL -> action."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from urllib.parse import unquote

from app.access.rules import Permission
from app.core.errors import InvalidRequest
from app.transports.http.audience import Audience
from app.transports.paths import without_needless_encoding

#: Clients that encode the last segment send its colon as "%3A"; a "%3A" before it belongs to the name.
_NAME = r"/v1/models/(?P<model>[^/:]+)"
_VERSION = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_CALL = re.compile(rf"{_NAME}{_VERSION}(?::|%3A)(?P<action>classify|regress|predict|predictStream)", re.IGNORECASE)
_READ = re.compile(rf"{_NAME}{_VERSION}(?P<metadata>/metadata)?", re.IGNORECASE)
_LIST = re.compile(r"/v1/models", re.IGNORECASE)

_INT64_MAX = 2**63 - 1


class Action(Enum):
    """The operation that a request asks for."""

    PREDICT = auto()
    PREDICTSTREAM = auto()
    CLASSIFY = auto()
    REGRESS = auto()
    STATUS = auto()
    METADATA = auto()
    LIST = auto()


#: The permission that an action needs.
PERMISSIONS: Mapping[Action, Permission] = {
    Action.PREDICT: Permission.INFER,
    Action.PREDICTSTREAM: Permission.INFER,
    Action.CLASSIFY: Permission.INFER,
    Action.REGRESS: Permission.INFER,
    Action.STATUS: Permission.METADATA,
    Action.METADATA: Permission.METADATA,
    Action.LIST: Permission.METADATA,
}


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a request. `model` None: the default model. At most one of version and label is not None."""

    action: Action
    model: str | None = None
    version: int | None = None
    label: str | None = None


@lru_cache(maxsize=1024)
def find_route(method: str, path: str) -> Route:
    """The route of a request.

    Args:
        path: as sent: percent-encoded, without the query.

    Raises:
        InvalidRequest: this API has no such path, or not with this method.
    """
    route = None
    if method == "POST":
        route = _find_call(path)
    elif method == "GET":
        route = _find_read(path)
    if route is None:
        raise InvalidRequest(f"Malformed request: {method} {path[:256]}")
    return route


def methods_of(path: str) -> Collection[str]:
    """The methods that a path, as sent, accepts; empty if there is no such path."""
    try:
        found = {"POST": _find_call(path), "GET": _find_read(path)}
    except InvalidRequest:  # its version is no number
        return ()
    return [method for method, route in found.items() if route is not None]


def audience_of(path: str) -> Audience:
    """The audience of a path, as sent; EVERYONE if there is no such path."""
    path = without_needless_encoding(path)
    return Audience.CALLERS if path == "/predict" or _CALL.fullmatch(path) else Audience.EVERYONE


def _find_call(path: str) -> Route | None:
    path = without_needless_encoding(path)
    if path == "/predict":
        return Route(Action.PREDICT)
    found = _CALL.fullmatch(path)
    return found and _route(Action[found["action"].upper()], found)


def _find_read(path: str) -> Route | None:
    path = without_needless_encoding(path)
    if _LIST.fullmatch(path):
        return Route(Action.LIST)
    found = _READ.fullmatch(path)
    return found and _route(Action.METADATA if found["metadata"] else Action.STATUS, found)


def _route(action: Action, found: re.Match[str]) -> Route:
    version, label = found["version"], found["label"]
    return Route(
        action,
        unquote(found["model"]),
        None if version is None else _number(version),
        None if label is None else unquote(label),
    )


def _number(version: str) -> int:
    digits = version.lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > _INT64_MAX:
        raise InvalidRequest(f"Failed to convert version: {version[:256]} to numeric.")
    return int(digits)
