"""The whole document: FastAPI's own routes, and those of the protocols that bypass it."""

from __future__ import annotations

from collections.abc import Callable

from app.core.errors import ServingError
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.operations.openapi import open_inference_paths, parts, tensorflow_paths
from app.protocols.operations.openapi.parts import Document
from app.transports.rendered_pages import Pieces

#: What FastAPI tells of every route with a parameter, although no route of Ferry answers so.
_NEVER_SENT = "422"
_UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")


def add_protocols(document: Document, repository: ServedRepository) -> Pieces[Document]:
    """FastAPI's document with the paths of all protocols, for the models that are ready now.

    What is left out of FastAPI's own document, and added to it, is so however often this is called.
    """
    ready = _ready(repository)
    own = document["paths"]
    for operations in own.values():
        for operation in operations.values():
            operation["responses"].pop(_NEVER_SENT, None)
    components = document.setdefault("components", {})
    components["responses"] = dict(parts.RESPONSES)
    schemas = components.setdefault("schemas", {})
    for name in _UNUSED_SCHEMAS:
        schemas.pop(name, None)
    for each in (parts, tensorflow_paths, open_inference_paths):
        schemas |= each.SCHEMAS
    protocols = {
        **(yield from tensorflow_paths.tensorflow_paths(ready, _default(repository))),
        **(yield from open_inference_paths.open_inference_paths(ready)),
    }
    return {**document, "paths": {**protocols, **own}}


#: How a credential is sent: either way.
_SCHEMES: Document = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a token of an issuer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same in a field of its own"},
}


def add_access(document: Document, is_open: Callable[[str, str], bool]) -> Document:
    """The document of a server that needs credentials. `is_open`: may everybody call this method and path?"""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if is_open(method.upper(), path):
                operation["security"] = []
            else:
                operation["responses"] = {**parts.failures(parts.ACCESS), **operation["responses"]}
    document["components"]["securitySchemes"] = _SCHEMES
    return {**document, "security": [{name: []} for name in _SCHEMES]}


def described_models(repository: ServedRepository) -> list[ServedModel]:
    """The models that the document depends on."""
    default = _default(repository)
    return [*([] if default is None else [default]), *_ready(repository)]


def _ready(repository: ServedRepository) -> list[ServedModel]:
    """The newest version of each model that can be called."""
    found = []
    for name in repository.names():
        try:
            found.append(repository.resolve(name))
        except ServingError:
            continue
    return found


def _default(repository: ServedRepository) -> ServedModel | None:
    """The model behind POST /predict; None if there is none or it is not ready."""
    try:
        return repository.resolve(repository.default_name())
    except ServingError:
        return None
