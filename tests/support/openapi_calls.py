"""One good call of every operation of the OpenAPI document, for a server of the models that are named here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.processes import ROOT

#: The shipped models; `classic` has signatures for classify and regress; `spare` is unloaded and loaded.
SHIPPED, CLASSIC, SPARE = ("digits", "text"), "classic", "spare"

REGION, REGION_BYTES = "ferry_openapi", 64

_IMAGE = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"][0]["image"]
_PIXELS = [float(pixel) for row in _IMAGE for pixel in row]

#: By operation, where the document cannot have an example: tf.Examples, options, names of the machine.
_BODIES: dict[str, Any] = {
    "classify": {"signature_name": "classify", "examples": [{"image": _PIXELS}]},
    "classify classic": {"signature_name": "classify", "examples": [{"age": 30.0}]},
    "regress": {"signature_name": "regress", "examples": [{"age": 30.0}, {}]},
    "predict": {"instances": [{"image": _IMAGE}]},
    "predict classic": {"signature_name": "regress", "instances": [""]},
    "predictStream": f"{json.dumps(_IMAGE)}\n",
    "predictStream classic": '""\n',
    "infer classic": {
        "parameters": {"signature_name": "regress"},
        "inputs": [{"name": "inputs", "datatype": "BYTES", "shape": [1], "data": [""]}],
    },
    "infer": {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 8, 8], "data": _PIXELS}]},
    "repository_index": {"ready": True},
    "load": {},
    "unload": {},
    "system_register": {"key": f"/{REGION}", "offset": 0, "byte_size": REGION_BYTES},
    "cuda_register": {},
    "change_batching": {"max_batch_delay_ms": 0},
}

_QUERIES = {"predictStream classic": {"signature_name": "regress"}}


#: What has to come before the others (-1), or after them.
_TURNS = {"system_register": -1, "unload": 1, "load": 2, "system_unregister_region": 1, "system_unregister": 1}


@dataclass(frozen=True)
class Call:
    """`path` and `query` are parameters by name; a body that is text is sent as it is, any other as JSON."""

    operation: str
    method: str
    template: str
    path: dict[str, Any] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def url(self) -> str:
        return self.template.format(**self.path)


def calls(document: dict[str, Any]) -> list[Call]:
    """A call of each operation. In the end there are the same models and regions as before."""
    found = [_call(*each) for each in operations(document)]
    return sorted(found, key=lambda call: _TURNS.get(call.operation, 0))


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def succeeds(operation: dict[str, Any]) -> bool:
    return "200" in operation["responses"]


def _call(path: str, method: str, operation: dict[str, Any]) -> Call:
    name = operation["operationId"]
    kind = name.partition(" ")[0].removesuffix("_version").removesuffix("_label").removesuffix("_default")
    model = SPARE if kind in {"load", "unload"} else CLASSIC if kind == "regress" else "digits"
    values = {"model": model, "version": 1, "label": "stable", "region": REGION}
    wanted = {each["name"]: values[each["name"]] for each in operation.get("parameters", ()) if each["in"] == "path"}
    body = _BODIES.get(name) or _example(operation) or _BODIES.get(kind) if "requestBody" in operation else None
    return Call(name, method.upper(), path, wanted, _QUERIES.get(name, {}), body)


def _example(operation: dict[str, Any]) -> Any:
    """The first example of the document."""
    for content in operation["requestBody"]["content"].values():
        for example in content.get("examples", {}).values():
            return example["value"]
        if "example" in content:
            return content["example"]
    return None
