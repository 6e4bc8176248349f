"""The whole document: FastAPI's own routes, and those of the protocols that bypass it."""

from __future__ import annotations

from app.core.errors import ServingError
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.operations.openapi import open_inference_paths, parts, tensorflow_paths
from app.protocols.operations.openapi.parts import Document

#: What FastAPI tells of every route with a parameter, although no route of Ferry answers so.
_NEVER_SENT = "422"
_UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")


def add_protocols(document: Document, repository: ServedRepository) -> Document:
    """FastAPI's document with the paths of all protocols, for the models that are ready now."""
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
        **tensorflow_paths.tensorflow_paths(ready, _default(repository)),
        **open_inference_paths.open_inference_paths(ready),
    }
    return {**document, "paths": {**protocols, **own}}


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
