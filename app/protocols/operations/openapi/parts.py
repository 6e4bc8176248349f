"""Parts that operations of the OpenAPI document share: parameters, replies, errors, and schemas that have a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.batching.priority import DEFAULT_LEVEL, LOWEST_LEVEL
from app.core.inference import BatchTiming
from app.transports.http.server_timing import server_timing

#: A part of the document, as JSON.
Document = dict[str, Any]

JSON = "application/json"

#: A body that is not JSON.
BINARY: Document = {"schema": {"type": "string", "format": "binary"}}

ANY_OBJECT: Document = {"type": "object"}

#: The cause of each status that an operation lists; `default` stands for every other status.
CAUSES: Mapping[int, str] = {
    400: "The request does not parse or does not fit the model",
    401: "There is no credential, or none that is valid here",
    403: "This server does not let this caller do it; administration needs the setting model_control=explicit",
    404: "There is no such model, version or path",
    406: "Accept allows no type that the reply can have",
    413: "The body or the number of rows is too large",
    415: "The Content-Type or Content-Encoding is not supported",
    429: "The caller sends more requests than it may; try again after Retry-After",
    500: "The model or the device failed; the log has the rest",
    501: "This server or this protocol cannot express what is asked",
    503: "Loading, overloaded or shutting down; try again after Retry-After",
    504: "The request timed out",
}

#: The statuses of an operation that needs a credential.
ACCESS = (401, 403, 429)

#: The statuses of every operation that calls a model.
COMPUTING = (400, 404, 413, 415, 500, 501, 503, 504)

#: The statuses of an operation that looks at a model.
READING = (400, 404, 503)

_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds until another try makes sense", "schema": {"type": "integer", "minimum": 0}}
}

#: The headers of replies to computed requests.
TIMING = {
    "Server-Timing": {
        "description": "Milliseconds in the queue and in the call, and the rows of the batch",
        "schema": {"type": "string", "example": server_timing(BatchTiming(0.00012, 0.00085, 16)).decode()},
    }
}


# --- schemas ---


def ref(name: str) -> Document:
    """The schema of this name among the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(properties: Mapping[str, Document], optional: Iterable[str] = (), **more: Any) -> Document:
    """An object that has all of the properties but the optional ones."""
    required = [name for name in properties if name not in set(optional)]
    return {"type": "object", "properties": dict(properties), **({"required": required} if required else {}), **more}


def array(items: Document | None = None, **more: Any) -> Document:
    return {"type": "array", "items": items or {}, **more}


TEXT: Document = {"type": "string"}

SCHEMAS: Mapping[str, Document] = {"Error": record({"error": TEXT}, description="Every error over HTTP")}


# --- parameters ---


def parameter(place: str, name: str, schema: Document, description: str, **more: Any) -> Document:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": schema,
        "description": description,
        **more,
    }


def timeout(meaning: str = "Milliseconds from arrival to answer") -> Document:
    schema = {"type": "number", "exclusiveMinimum": 0}
    return parameter("header", "X-Request-Timeout-Ms", schema, f"{meaning}; at most request_timeout_ms")


PRIORITY = parameter(
    "header",
    "X-Request-Priority",
    {"type": "integer", "minimum": 0, "maximum": 2**64 - 1, "default": 0},
    f"1 is the highest, {DEFAULT_LEVEL} (or 0) the default, {LOWEST_LEVEL} the lowest",
)


def model_parameter(ready: list[str]) -> Document:
    """The parameter `model`. `ready`: the models that can be called; the first is the example."""
    schema = {"type": "string", "minLength": 1, "pattern": "^[^/:]+$"}
    return parameter("path", "model", schema, "The model", **({"example": ready[0]} if ready else {}))


VERSION = parameter(
    "path", "version", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "The version", example=1
)


# --- operations ---


def operation(
    name: str,
    summary: str,
    tag: str,
    *,
    replies: Document | None,
    errors: Iterable[int],
    parameters: Iterable[Document] = (),
    body: Document | None = None,
    headers: Document | None = None,
    **more: Any,
) -> Document:
    """An operation. Without `replies` it is always rejected.

    Args:
        name: unique in the document; generators of clients name a function by it.
        replies: content by media type, of status 200.
        body: content by media type.
        headers: the headers of the reply with status 200.
    """
    responses = failures(errors)
    if replies is not None:
        success = {"description": "The answer", "content": replies, **({"headers": headers} if headers else {})}
        responses = {"200": success, **responses}
    return {
        "operationId": name,
        "summary": summary,
        "tags": [tag],
        "parameters": [*parameters],
        **({"requestBody": {"required": True, "content": body}} if body is not None else {}),
        "responses": responses,
        **more,
    }


def in_json(schema: Document, **more: Any) -> Document:
    """Content in JSON alone."""
    return {JSON: {"schema": schema, **more}}


def json_operation(
    method: str, name: str, summary: str, tag: str, reply: Document | None, *, body: Document | None = None, **more: Any
) -> Document:
    """An operation by its method, with a reply and perhaps a body in JSON alone, by their schemas."""
    content = None if body is None else in_json(body)
    replies = None if reply is None else in_json(reply)
    return {method: operation(name, summary, tag, replies=replies, body=content, **more)}


def failures(codes: Iterable[int]) -> dict[int | str, Document]:
    """References to the responses of these statuses and of any other error."""
    return {str(code): {"$ref": f"#/components/responses/{code}"} for code in [*codes, "default"]}


def _failure(cause: str, headers: Document) -> Document:
    return {"description": cause, "content": in_json(ref("Error")), **({"headers": headers} if headers else {})}


RESPONSES: Mapping[str, Document] = {
    **{str(code): _failure(cause, _RETRY_AFTER if code in {429, 503} else {}) for code, cause in CAUSES.items()},
    "default": _failure("Any other error", {}),
}
