"""GET /: a short page of text with the routes, for people who only know the server's address.

The page names no model. It lists the routes of the port that the request came to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

FRONT_PATH = "/"

#: The name of a model on the page; every name has the same routes.
_MODEL = "NAME"

#: Method, path and purpose, in the order of the page; an empty path begins a paragraph.
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
    """The text of the page.

    Args:
        methods: the methods that a path accepts on this port; none for a path that is not there.
    """
    lines = [f"Ferry {version} serves models over HTTP. {_MODEL} stands for the name of a model.", ""]
    for method, path, meaning in _ROUTES:
        if not path:
            lines.append("")
        elif method in methods(path):
            lines.append(f"{method:<5}{path:<32}{meaning}")
    return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n") + "\n"
