"""What KServe's webhook refuses of a ClusterServingRuntime beside those that a cluster has.

Source: pkg/webhook/admission/servingruntime/servingruntime_webhook.go in kserve/kserve (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from tests.deploy.manifests import Manifest

#: InferenceServiceProtocol in pkg/constants/constants.go.
PROTOCOLS = frozenset({"v1", "v2", "grpc-v1", "grpc-v2"})


def _runtime(name: str, protocols: Sequence[str], priority: int, versions: Sequence[str] = ("1", "2")) -> Manifest:
    formats = [
        {"name": "tensorflow", "version": version, "autoSelect": True, "priority": priority} for version in versions
    ]
    return {"metadata": {"name": name}, "spec": {"protocolVersions": protocols, "supportedModelFormats": formats}}


#: Of KServe's own runtimes those that serve TensorFlow, and what the webhook reads of them, as config/runtimes has
#: it: up to 0.16 the first two (read at 94adc24f), in what comes after OpenVINO's, too (0e758718).
STOCK = (
    _runtime("kserve-tensorflow-serving", ["v1", "grpc-v1"], 2),
    _runtime("kserve-tritonserver", ["v2", "grpc-v2"], 1),
    _runtime("kserve-openvino", ["v1", "v2", "grpc-v2"], 3, versions=["1"]),
)


def refusals(new: Manifest, existing: Sequence[Manifest]) -> Iterator[str]:
    """Why it does not let `new` in: none if it does."""
    spec = new["spec"]
    yield from (f"protocol {each} is unknown" for each in spec["protocolVersions"] if each not in PROTOCOLS)
    if spec.get("disabled"):
        return

    # 1. Of one format all versions have one priority.
    priorities: dict[str, Any] = {}
    for each in _chosen_by_itself(spec):
        first = priorities.setdefault(each["name"], each.get("priority"))
        if None not in (first, each.get("priority")) and first != each["priority"]:
            yield f"different priorities assigned for the model format {each['name']}"

    # 2. No other runtime has a format, its version, a protocol and the priority.
    for other in existing:
        if _compared(spec, other["spec"]) and other["metadata"]["name"] != new["metadata"]["name"]:
            for name in _same_priority(spec, other["spec"]):
                yield f"same priority assigned for the model format {name} as {other['metadata']['name']} has"


def _compared(spec: dict[str, Any], other: dict[str, Any]) -> bool:
    alike = bool(spec.get("multiModel")) == bool(other.get("multiModel"))
    return alike and not other.get("disabled") and bool(set(spec["protocolVersions"]) & set(other["protocolVersions"]))


def _same_priority(spec: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    for ours, theirs in product(_chosen_by_itself(spec), _chosen_by_itself(other)):
        same = (ours["name"].lower(), ours.get("version")) == (theirs["name"].lower(), theirs.get("version"))
        if same and ours.get("priority") is not None and ours["priority"] == theirs.get("priority"):
            yield ours["name"]


def _chosen_by_itself(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in spec["supportedModelFormats"] if each.get("autoSelect")]
