"""The permission that a page of operators needs. A page that is not listed needs METADATA on all models."""

from __future__ import annotations

from app.access.rules import OPEN, UNKNOWN, Need, Permission
from app.protocols.operations.batching_page import BATCHING_PATH
from app.protocols.operations.front_page import FRONT_PATH
from app.transports.http.probes import PROBES

#: Pages that show all that the server does, with the names of all models.
_METRICS = frozenset({"/metrics", "/health"})

_BATCHING = {"GET": Permission.METADATA, "PATCH": Permission.ADMINISTRATION}


def need_of_page(method: str, path: str, metrics_path: str = "") -> Need:
    """The need of one page.

    Args:
        path: decoded, as routes are compared with.
        metrics_path: the second path of the metrics page; empty for none.
    """
    if path in PROBES:  # a probe sees no model's name but those of broken models (/readyz)
        return OPEN
    if path == FRONT_PATH:
        return Need(Permission.METADATA)
    if path in _METRICS or (metrics_path and path == metrics_path):
        return Need(Permission.METRICS)
    if BATCHING_PATH.fullmatch(path):
        return Need(_BATCHING.get(method, Permission.ADMINISTRATION), path.split("/")[3])
    return UNKNOWN
