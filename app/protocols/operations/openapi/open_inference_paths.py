"""The Open Inference Protocol in the OpenAPI document, with Triton's extensions."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from app.core.interfaces import ServedModel
from app.protocols.open_inference.datatypes import DATATYPES
from app.protocols.operations.openapi.model_bodies import infer_body
from app.protocols.operations.openapi.parts import (
    ANY_OBJECT,
    BINARY,
    COMPUTING,
    JSON,
    PRIORITY,
    READING,
    TEXT,
    TIMING,
    VERSION,
    Document,
    array,
    in_json,
    model_parameter,
    operation,
    parameter,
    record,
    ref,
    timeout,
)
from app.transports.rendered_pages import Pieces

_TAG = "Open Inference"

_COUNT: Document = {"type": "integer", "minimum": 0}
_SIZES = array({"type": "integer"}, description="-1 for a free size")
_DATATYPE: Document = {"type": "string", "enum": list(DATATYPES)}
_DESCRIBED = record({"name": TEXT, "datatype": TEXT, "shape": _SIZES})

_PARAMETERS: Document = {"type": "object", "description": "Parameters of the protocol and of Triton's extensions"}
_INPUT = record(
    {"name": TEXT, "datatype": _DATATYPE, "shape": array(_COUNT), "parameters": _PARAMETERS, "data": {}},
    ("parameters", "data"),
)
_OUTPUT = record(
    {"name": TEXT, "datatype": _DATATYPE, "shape": array(_COUNT), "parameters": _PARAMETERS, "data": array()},
    ("parameters", "data"),
)
_REGION = {"name": TEXT, "key": TEXT, "offset": _COUNT, "byte_size": _COUNT}

SCHEMAS: Mapping[str, Document] = {
    "InferRequest": record(
        {
            "id": TEXT,
            "parameters": _PARAMETERS,
            "inputs": array(_INPUT),
            "outputs": array(record({"name": TEXT, "parameters": _PARAMETERS}, ("parameters",))),
        },
        ("id", "parameters", "outputs"),
    ),
    "InferReply": record(
        {"model_name": TEXT, "model_version": TEXT, "outputs": array(_OUTPUT), "id": TEXT},
        ("id",),
    ),
    "ServerMetadata": record({"name": TEXT, "version": TEXT, "extensions": array(TEXT)}),
    "Live": record({"live": {"type": "boolean"}}),
    "Ready": record({"ready": {"type": "boolean"}}),
    "ModelReady": record({"name": TEXT, "ready": {"type": "boolean"}}),
    "ModelMetadata": record(
        {
            "name": TEXT,
            "versions": array(TEXT),
            "platform": TEXT,
            "inputs": array(_DESCRIBED),
            "outputs": array(_DESCRIBED),
        }
    ),
    "ModelConfig": record({"name": TEXT, "platform": TEXT, "max_batch_size": _COUNT, "input": array(ANY_OBJECT)}),
    "ModelStatistics": record(
        {"model_stats": array(record({"name": TEXT, "version": TEXT, "inference_stats": ANY_OBJECT}))}
    ),
    "RepositoryIndex": array(record({"name": TEXT, "version": TEXT, "state": TEXT, "reason": TEXT})),
    "SharedMemoryRegions": array(record(_REGION)),
    "SharedMemoryRegion": record({name: schema for name, schema in _REGION.items() if name != "name"}, ("offset",)),
    "Nothing": {"type": "object", "maxProperties": 0},
}

_REGION_NAME = parameter("path", "region", {**TEXT, "minLength": 1}, "The name of a region", example="region")

_INFER_HEADERS = [
    parameter(
        "header",
        "Inference-Header-Content-Length",
        _COUNT,
        "Bytes of the JSON before binary tensors; without it application/octet-stream is one bare tensor",
    ),
    timeout(),
    PRIORITY,
]


def open_inference_paths(ready: list[ServedModel]) -> Pieces[Document]:
    """All paths below /v2; infer once more for each ready model, under the model's name."""
    paths: Document = {}
    for each in ready:
        if each.signatures:
            body = infer_body(each.signatures)
            infer = _infer(f"infer {each.name}", f"Infer with {each.name}, version {each.version}", each.name, body)
            paths[f"/v2/models/{quote(each.name, safe='')}/infer"] = {"post": infer}
        yield
    model = model_parameter([each.name for each in ready])
    paths |= _server()
    paths |= _of_model("/v2/models/{model}", "", [model])
    paths |= _of_model("/v2/models/{model}/versions/{version}", "_version", [model, VERSION])
    paths |= _repository(model)
    for kind in ("system", "cuda"):
        paths |= _memory(kind)
    return paths


def _server() -> Document:
    health: Document = {}
    for name in ("live", "ready"):
        schema = ref(name.capitalize())
        get = _read(f"v2_{name}", f"Is the server {name}?", schema, errors=())["get"]
        get["responses"]["503"] = {"description": "No", "content": in_json(schema)}
        health[f"/v2/health/{name}"] = {"get": get}
    return {
        "/v2": _read("v2_server", "Name, version and extensions of the server", ref("ServerMetadata"), errors=()),
        **health,
        "/v2/models/stats": _read("v2_all_stats", "Statistics of all models", ref("ModelStatistics")),
    }


def _of_model(base: str, suffix: str, parameters: list[Document]) -> Document:
    whose = "one version of a model" if suffix else "a model"

    def read(name: str, summary: str, schema: str) -> Document:
        return _read(f"v2_{name}{suffix}", f"{summary} {whose}", ref(schema), parameters)

    infer = _infer(f"infer{suffix}", f"Infer with {whose}", _TAG, {"schema": ref("InferRequest")})
    return {
        base: read("model", "Inputs and outputs of", "ModelMetadata"),
        f"{base}/ready": read("model_ready", "Readiness of", "ModelReady"),
        f"{base}/config": read("config", "Triton's configuration of", "ModelConfig"),
        f"{base}/stats": read("stats", "Statistics of", "ModelStatistics"),
        f"{base}/infer": {"post": {**infer, "parameters": [*parameters, *infer["parameters"]]}},
    }


def _repository(model: Document) -> Document:
    index = record({"ready": {"type": "boolean", "description": "Only versions that can be called"}}, ("ready",))
    change = record({"parameters": ANY_OBJECT}, ("parameters",))
    base = "/v2/repository/models/{model}"
    return {
        "/v2/repository/index": _write("repository_index", "All models and versions", ref("RepositoryIndex"), index),
        f"{base}/load": _write("load", "Load a model, or its newest version", ref("Nothing"), change, [model]),
        f"{base}/unload": _write("unload", "Unload a model", ref("Nothing"), change, [model]),
    }


def _memory(kind: str) -> Document:
    """The paths of shared memory of one kind, `system` or `cuda`."""
    base = f"/v2/{kind}sharedmemory"
    region = f"{base}/region/{{region}}"
    # There are never regions in CUDA's memory: only requests about all regions succeed.
    regions, nothing = ref("SharedMemoryRegions"), ref("Nothing")
    one, done = (None, None) if kind == "cuda" else (regions, nothing)
    named = [_REGION_NAME]
    body = ref("SharedMemoryRegion") if kind == "system" else ANY_OBJECT
    return {
        f"{base}/status": _read(f"{kind}_status", f"All regions ({kind})", regions, errors=_CONTROL),
        f"{base}/unregister": _write(f"{kind}_unregister", f"Forget all regions ({kind})", nothing, None),
        f"{region}/status": _read(f"{kind}_status_region", f"One region ({kind})", one, named, errors=_CONTROL),
        f"{region}/register": _write(f"{kind}_register", f"Register a region ({kind})", done, body, named),
        f"{region}/unregister": _write(
            f"{kind}_unregister_region", f"Forget one region ({kind})", nothing, None, named
        ),
    }


#: Model control and shared memory may be switched off.
_CONTROL = (400, 403, 404, 413, 501, 503)


def _read(
    name: str,
    summary: str,
    schema: Document | None,
    parameters: list[Document] | None = None,
    errors: tuple[int, ...] = READING,
) -> Document:
    replies = None if schema is None else in_json(schema)
    return {"get": operation(name, summary, _TAG, replies=replies, errors=errors, parameters=parameters or [])}


def _write(
    name: str, summary: str, reply: Document | None, body: Document | None, parameters: list[Document] | None = None
) -> Document:
    content = None if body is None else in_json(body)
    replies = None if reply is None else in_json(reply)
    post = operation(name, summary, _TAG, body=content, replies=replies, errors=_CONTROL, parameters=parameters or [])
    return {"post": post}


def _infer(name: str, summary: str, tag: str, body: Document) -> Document:
    return operation(
        name,
        summary,
        tag,
        body={JSON: body, "application/octet-stream": BINARY},
        replies={**in_json(ref("InferReply")), "application/octet-stream": BINARY},
        headers=TIMING,
        errors=sorted({*COMPUTING, 403}),
        parameters=_INFER_HEADERS,
        description="Tensors may stand after the JSON as bytes (Triton's binary tensor extension). The body may be "
        "compressed (Content-Encoding gzip or deflate).",
    )
