"""The OpenAPI document: FastAPI's own routes, and the routes of the protocols that bypass it."""

from __future__ import annotations

from collections.abc import Callable

from app.core.errors import ServingError
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.operations.openapi import open_inference_paths, parts, tensorflow_paths
from app.protocols.operations.openapi.parts import Document
from app.transports.rendered_pages import Pieces

#: The response and the schemas that FastAPI adds to routes with parameters, and no route of Ferry uses.
_NEVER_SENT = "422"
_UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")


def add_protocols(document: Document, repository: ServedRepository) -> Pieces[Document]:
    """FastAPI's document with the paths of all protocols, for the models that are ready now.

    A second call with the same document changes nothing more.
    """
    # 1. FastAPI's own routes, without responses that they never send.
    ready = _ready(repository)
    own_paths = document["paths"]
    for operations in own_paths.values():
        for operation in operations.values():
            operation["responses"].pop(_NEVER_SENT, None)

    # 2. Components: responses and schemas of all protocols.
    components = document.setdefault("components", {})
    components["responses"] = dict(parts.RESPONSES)
    schemas = components.setdefault("schemas", {})
    for name in _UNUSED_SCHEMAS:
        schemas.pop(name, None)
    for module in (parts, tensorflow_paths, open_inference_paths):
        schemas |= module.SCHEMAS

    # 3. The paths of the protocols, in pieces: there may be many models.
    protocols = {
        **(yield from tensorflow_paths.tensorflow_paths(ready, _default(repository))),
        **(yield from open_inference_paths.open_inference_paths(ready)),
    }
    return {**document, "paths": {**protocols, **own_paths}}


#: The two ways of sending a credential.
_SCHEMES: Document = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a token of an issuer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same in a field of its own"},
}


def add_access(document: Document, is_open: Callable[[str, str], bool]) -> Document:
    """The document of a server that needs credentials. `is_open`: whether a method and path need none."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if is_open(method.upper(), path):
                operation["security"] = []
            else:
                operation["responses"] = {**parts.failures(parts.ACCESS), **operation["responses"]}
    document["components"]["securitySchemes"] = _SCHEMES
    return {**document, "security": [{name: []} for name in _SCHEMES]}


def described_models(repository: ServedRepository) -> list[ServedModel]:
    """The models whose schemas the document shows."""
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
