"""The front page, GET /: a short text that lists the routes, for a reader who knows only the server's address.

The page lists the routes of the port on which the request arrived. It names no model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

FRONT_PATH = "/"

#: The placeholder on the page for the name of a model.
_MODEL = "NAME"

#: Method, path and purpose of the routes, in the order of the page; an entry with an empty path is an empty line.
_ROUTES = (
    ("GET", "/v1/models", "the models, and the states of their versions"),
    ("GET", "/v1/models/NAME/metadata", "what a model takes and returns"),
    ("POST", "/v1/models/NAME:predict", "predict: TensorFlow Serving's REST API"),
    ("POST", "/v1/models/NAME:predictStream", "predict, line by line"),
    ("POST", "/v1/models/NAME:classify", "also :regress"),
    ("POST", "/predict", "predict with the default model"),
    ("", "", ""),
    ("GET", "/v2", "Open Inference Protocol v2: name, version, extensions"),
    ("GET", "/v2/models/NAME", "what a model takes and returns"),
    ("POST", "/v2/models/NAME/infer", "infer"),
    ("GET", "/v2/models/stats", "statistics of all models"),
    ("POST", "/v2/repository/index", "all models and versions"),
    ("", "", ""),
    ("GET", "/livez", "is the process alive?"),
    ("GET", "/readyz", "is it ready for requests?"),
    ("GET", "/health", "models, devices, queue and uptime"),
    ("GET", "/metrics", "metrics for Prometheus"),
    ("GET", "/v1/models/NAME/batching", "how batches are formed, what they cost, and what would help"),
    ("", "", ""),
    ("GET", "/docs", "every route, to try it"),
    ("GET", "/openapi.json", "every route, for generators of clients"),
)


def front_page(version: str, methods: Callable[[str], Collection[str]]) -> str:
    """The text of the page, for one port of the server.

    Args:
        methods: from a path to the methods that this port accepts for it; empty if this port has no such path.
    """
    lines = [f"Ferry {version} serves models over HTTP. {_MODEL} stands for the name of a model.", ""]
    for method, path, meaning in _ROUTES:
        if not path:
            lines.append("")
        elif method in methods(path):
            lines.append(f"{method:<5}{path:<32}{meaning}")
    return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n") + "\n"
