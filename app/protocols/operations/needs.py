"""What a caller needs for each page that no protocol answers. What is not listed here is closed to all but a few."""

from __future__ import annotations

from app.access.rules import OPEN, UNKNOWN, Need, Permission
from app.protocols.operations.batching_page import BATCHING_PATH
from app.protocols.operations.front_page import FRONT_PATH
from app.transports.http.probes import PROBES

#: All of what the server does, with the names of all models.
_METRICS = frozenset({"/metrics", "/health"})

_BATCHING = {"GET": Permission.METADATA, "PATCH": Permission.ADMINISTRATION}


def need_of_page(method: str, path: str, metrics_path: str = "") -> Need:
    """`path`: decoded, as routes are compared with; `metrics_path`: where the metrics page is, too; empty for none."""
    if path in PROBES:  # they learn no name but those of models that do not work (/readyz)
        return OPEN
    if path == FRONT_PATH:  # it names no model
        return Need(Permission.METADATA)
    if path in _METRICS or (metrics_path and path == metrics_path):
        return Need(Permission.METRICS)
    if BATCHING_PATH.fullmatch(path):
        return Need(_BATCHING.get(method, Permission.ADMINISTRATION), path.split("/")[3])
    return UNKNOWN
