"""Custom resources, checked against the schemas of their definitions: kubernetes-validate knows none of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_SCHEMAS = Path(__file__).parent / "crds"

#: By API group and kind, the schema that it is checked against.
_SCHEMA_OF = {
    ("keda.sh", "ScaledObject"): "ScaledObject",
    ("monitoring.coreos.com", "PrometheusRule"): "PrometheusRule",
    ("monitoring.coreos.com", "PodMonitor"): "ServiceMonitor",
    ("gateway.networking.k8s.io", "HTTPRoute"): "HTTPRoute",
    ("gateway.networking.k8s.io", "GRPCRoute"): "HTTPRoute",
    ("serving.kserve.io", "ClusterServingRuntime"): "ServingRuntime",
    ("serving.kserve.io", "InferenceService"): "InferenceService",
}


def is_custom(manifest: dict[str, Any]) -> bool:
    """Of an API group that is not Kubernetes' own."""
    group = manifest["apiVersion"].rpartition("/")[0]
    return ("." in group and not group.endswith(".k8s.io")) or group == "gateway.networking.k8s.io"


def faults(manifest: dict[str, Any]) -> Iterator[str]:
    """One sentence for each fault; unknown fields and kinds are some."""
    name = _SCHEMA_OF.get((manifest["apiVersion"].rpartition("/")[0], manifest["kind"]))
    if name is None:
        yield f"no schema of {manifest['apiVersion']} {manifest['kind']}"
        return
    for error in _validator(name).iter_errors(_as_in(name, manifest)):
        yield f"{manifest['kind']}: {error.json_path}: {error.message}"


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((_SCHEMAS / f"{name}.json").read_text()))


def _as_in(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """A kind without a schema of its own in the form of its nearest relation.

    A PodMonitor's endpoints are those of a ServiceMonitor. A GRPCRoute is an HTTPRoute but for what its rules match,
    which test_components.py looks at.
    """
    manifest = copy.deepcopy(manifest)
    if manifest["kind"] == "PodMonitor" and "podMetricsEndpoints" in manifest["spec"]:
        manifest["spec"]["endpoints"] = manifest["spec"].pop("podMetricsEndpoints")
    if manifest["kind"] == "GRPCRoute":
        for rule in manifest["spec"].get("rules", []):
            rule.pop("matches", None)
    return manifest
