"""Each component of k8s/components keeps every rule with base and GPU overlay, and asks for what there is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.codecs.protobuf.messages import service_descriptor
from app.instrumentation.metric_definitions import FERRY_METRICS
from app.model_server.flags import FLAGS
from k8s.chart import CHANGES
from k8s.chart import COMPONENTS as IN_THEIR_ORDER
from tests.deploy import rules
from tests.deploy.components import kserve_webhook
from tests.deploy.components.custom_resources import faults, is_custom
from tests.deploy.components.overlays import BASES, COMPONENTS, rendered_with
from tests.deploy.manifests import (
    BASE,
    GPU,
    ROOT,
    Manifest,
    containers,
    environment,
    of_kind,
    pod_specs,
    pod_templates,
    render,
)
from tests.deploy.monitoring.prometheus import metrics_in

NAMES = {definition.name for definition in FERRY_METRICS}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], list[Manifest]]:
    """By component and base."""
    return {
        (component, base.name): rendered_with(base, [component], tmp_path_factory.mktemp("overlay"))
        for component in COMPONENTS
        for base in BASES
    }


Rendered = Mapping[tuple[str, str], list[Manifest]]


@pytest.mark.parametrize("base", ["base", "gpu"])
@pytest.mark.parametrize("component", COMPONENTS)
def test_each_component_keeps_every_rule(rendered: Rendered, component: str, base: str) -> None:
    assert [fault for rule in rules.RULES for fault in rule(rendered[component, base])] == []


@pytest.mark.parametrize("scaling", ["autoscaling-keda", "autoscaling-hpa"])
def test_all_components_go_together(scaling: str, tmp_path: Path) -> None:
    others = {"autoscaling-keda", "autoscaling-hpa", "models-oci", "models-volume"} - {scaling}
    names = [component for component in IN_THEIR_ORDER if component not in others]
    manifests = rendered_with(BASE, names, tmp_path)
    assert [fault for rule in rules.RULES for fault in rule(manifests)] == []


@pytest.mark.parametrize(
    ("first", "behind"), [(one, component) for component, others in CHANGES.items() for one in others]
)
def test_kustomize_rejects_the_wrong_order(first: str, behind: str, tmp_path: Path) -> None:
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()
    assert rendered_with(BASE, [first, behind], tmp_path / "right")
    with pytest.raises(AssertionError, match=rf"/metadata/labels/[\w-]+-behind-[\w-]*{first}"):
        rendered_with(BASE, [behind, first], tmp_path / "wrong")


# --- autoscaling ---


@pytest.mark.parametrize("base", ["base", "gpu"])
@pytest.mark.parametrize("component", ["autoscaling-keda", "autoscaling-hpa"])
def test_one_autoscaler_owns_the_count_and_does_not_go_by_the_cpu(
    rendered: Rendered, component: str, base: str
) -> None:
    manifests = rendered[component, base]
    scalers = [*of_kind(manifests, "HorizontalPodAutoscaler"), *of_kind(manifests, "ScaledObject")]
    assert len(scalers) == 1
    assert "cpu" not in yaml.safe_dump(scalers)
    (deployment,) = of_kind(manifests, "Deployment")
    assert "replicas" not in deployment["spec"]
    assert scalers[0]["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_nothing_scales_pods_with_gpus_by_the_cpu() -> None:
    assert not list(of_kind(render(GPU), "HorizontalPodAutoscaler"))


def test_autoscalers_ask_for_metrics_that_there_are(rendered: Rendered) -> None:
    (scaled,) = of_kind(rendered["autoscaling-keda", "base"], "ScaledObject")
    asked = " ".join(trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"])
    adapter = yaml.safe_load((ROOT / "k8s/components/autoscaling-hpa/adapter-rules.yaml").read_text())["rules"]
    asked += " ".join(rule["seriesQuery"] + rule["metricsQuery"] for rule in adapter)
    assert metrics_in(asked) <= NAMES
    (scaler,) = of_kind(rendered["autoscaling-hpa", "base"], "HorizontalPodAutoscaler")
    wanted = {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]}
    assert wanted == {rule["name"]["as"] for rule in adapter}


# --- who reaches the pods ---


def test_policies_and_monitors_choose_the_pods_and_name_their_ports(rendered: Rendered) -> None:
    (template,) = pod_templates(rendered["networkpolicy", "base"])
    (container,) = template["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    (policy,) = of_kind(rendered["networkpolicy", "base"], "NetworkPolicy")
    (monitor,) = of_kind(rendered["monitoring", "base"], "PodMonitor")
    for selector in (policy["spec"]["podSelector"], monitor["spec"]["selector"]):
        assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == ports
    assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports
    assert policy["spec"]["egress"] == []


def test_routes_lead_to_ports_of_the_service_and_name_what_is_served(rendered: Rendered) -> None:
    manifests = rendered["gateway", "base"]
    (service,) = (each for each in of_kind(manifests, "Service") if each["metadata"]["name"] == "ferry")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    for kind, name in (("HTTPRoute", "http"), ("GRPCRoute", "grpc")):
        (route,) = of_kind(manifests, kind)
        backends = [backend for rule in route["spec"]["rules"] for backend in rule["backendRefs"]]
        assert backends == [{"name": "ferry", "port": ports[name]}]
    (route,) = of_kind(manifests, "HTTPRoute")
    prefixes = [match["path"]["value"] for rule in route["spec"]["rules"] for match in rule["matches"]]
    assert all(
        match["path"]["type"] == "PathPrefix" or match["path"]["value"] == "/v2"
        for rule in route["spec"]["rules"]
        for match in rule["matches"]
    )
    for inside in ("/metrics", "/health", "/docs", "/openapi.json", "/v2/repository/index"):
        assert not any(inside.startswith(f"{prefix}/") or inside == prefix for prefix in prefixes if prefix != "/v2")
    (route,) = of_kind(manifests, "GRPCRoute")
    matches = [match["method"] for rule in route["spec"]["rules"] for match in rule["matches"]]
    for match in matches:
        assert set(match) == {"service"}
        service_descriptor(match["service"])


# --- TLS, and the port of operators ---


def probes_of(container: Manifest) -> list[dict[str, Any]]:
    return [container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]


@pytest.mark.parametrize("component", ["tls", "mutual-tls"])
def test_files_of_tls_lie_in_whole_volumes_and_probes_and_services_speak_it(rendered: Rendered, component: str) -> None:
    manifests = rendered[component, "base"]
    (container,) = containers(manifests)
    folders = {mount["mountPath"] for mount in container["volumeMounts"] if "subPath" not in mount}
    files = {name: value for name, value in environment(container).items() if name.startswith("FERRY_TLS_")}
    expected = {"FERRY_TLS_CERTIFICATE", "FERRY_TLS_KEY", *(["FERRY_TLS_CLIENT_CA"] if "mutual" in component else [])}
    assert files.keys() == expected
    assert all(str(Path(file).parent) in folders for file in files.values())
    assert {probe["scheme"] for probe in probes_of(container)} == {"HTTPS"}
    protocols = {port["appProtocol"] for each in of_kind(manifests, "Service") for port in each["spec"]["ports"]}
    assert protocols == {"https"}


def test_where_clients_need_a_certificate_the_kubelet_asks_a_port_that_needs_none(rendered: Rendered) -> None:
    (container,) = containers(rendered["mutual-tls", "gpu"])
    variables = environment(container)
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert {probe["port"] for probe in probes_of(container)} == {"operators"}
    assert (variables["FERRY_OPERATOR_PORT"], variables["FERRY_OPERATOR_PORT_TLS"]) == (ports["operators"], "server")


@pytest.mark.parametrize("component", ["operator-port", "mutual-tls"])
def test_no_service_has_the_port_of_operators_and_prometheus_alone_reaches_it(component: str, tmp_path: Path) -> None:
    manifests = rendered_with(BASE, ["monitoring", "networkpolicy", component], tmp_path)
    (monitor,) = of_kind(manifests, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "operators"
    assert endpoint.get("scheme", "http") == ("https" if component == "mutual-tls" else "http")
    (policy,) = of_kind(manifests, "NetworkPolicy")
    clients, prometheus = policy["spec"]["ingress"]
    assert [port["port"] for port in prometheus["ports"]] == ["operators"]
    assert "operators" not in yaml.safe_dump([clients, *of_kind(manifests, "Service")])


# --- keys ---


def test_the_access_file_lies_in_a_whole_secret_and_prometheus_sends_a_key(tmp_path: Path) -> None:
    manifests = rendered_with(BASE, ["monitoring", "access-keys"], tmp_path)
    (spec,) = pod_specs(manifests)
    (container,) = spec["containers"]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"] if "subPath" not in mount}
    volume = mounted[str(Path(environment(container)["FERRY_ACCESS_FILE"] or "").parent)]
    assert [each["secret"]["secretName"] for each in spec["volumes"] if each["name"] == volume] == ["ferry-access"]
    (monitor,) = of_kind(manifests, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "ferry-metrics-key", "key": "key"}}


# --- models and caches ---


def test_models_of_an_image_come_by_digest_and_take_the_place_of_the_shipped_ones(rendered: Rendered) -> None:
    (template,) = pod_templates(rendered["models-oci", "base"])
    (volume,) = (each for each in template["spec"]["volumes"] if each["name"] == "models")
    assert "@sha256:" in volume["image"]["reference"]
    (container,) = template["spec"]["containers"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]


def test_credentials_of_the_models_store_are_in_a_secret_that_is_mounted_and_in_no_manifest(rendered: Rendered) -> None:
    manifests = rendered["models-store", "base"]
    (spec,) = pod_specs(manifests)
    assert not list(of_kind(manifests, "Secret"))
    secrets = [volume for volume in spec["volumes"] if "secret" in volume]
    assert [volume["secret"]["secretName"] for volume in secrets] == ["ferry-models-store"]
    for container in spec["initContainers"]:
        mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounted[str(Path(environment(container)["RCLONE_CONFIG"] or "").parent)] == secrets[0]["name"]
        assert not any("secret" in name.lower() or "key" in name.lower() for name in environment(container))


def test_a_sidecar_keeps_what_an_init_container_brought_where_ferry_reads_it(rendered: Rendered) -> None:
    (spec,) = pod_specs(rendered["models-store", "base"])
    first, sidecar = spec["initContainers"]
    assert (first["command"][-1], first.get("restartPolicy")) == ("once", None)
    assert (sidecar["command"][-1], sidecar["restartPolicy"]) == ("always", "Always")
    (ferry,) = spec["containers"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in ferry["volumeMounts"]
    for container in (first, sidecar):
        assert {"name": "models", "mountPath": environment(container)["MODELS"]} in container["volumeMounts"]
        assert container["image"].startswith("rclone/rclone:1.")


def test_a_policy_lets_the_models_store_reach_its_bucket(tmp_path: Path) -> None:
    (policy,) = of_kind(rendered_with(BASE, ["networkpolicy", "models-store"], tmp_path), "NetworkPolicy")
    (rule,) = policy["spec"]["egress"]
    assert {port["port"] for port in rule["ports"]} == {443, 53}


def test_the_shared_cache_is_where_variants_are_remembered(rendered: Rendered) -> None:
    (container,) = containers(rendered["shared-cache", "gpu"])
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert environment(container)["FERRY_VARIANT_CACHE"] == mounted["cache"]


def test_kserve_calls_the_model_server_with_flags_that_it_has(rendered: Rendered) -> None:
    (runtime,) = of_kind(rendered["kserve", "base"], "ClusterServingRuntime")
    (container,) = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container"
    assert container["command"] == ["ferry-model-server"]
    flags = {argument.partition("=")[0].removeprefix("--") for argument in container["args"]}
    assert flags <= FLAGS.keys()
    served = set(runtime["spec"]["protocolVersions"])
    formats = {each["name"] for each in runtime["spec"]["supportedModelFormats"]}
    asked = [each["spec"]["predictor"]["model"] for each in of_kind(rendered["kserve", "base"], "InferenceService")]
    assert {each["protocolVersion"] for each in asked} == {"v1", "v2"} <= served
    assert {(each["runtime"], each["modelFormat"]["name"]) for each in asked} == {("ferry", "tensorflow")}
    assert formats == {"tensorflow"}


def test_kserve_lets_the_runtime_in_beside_its_own(rendered: Rendered) -> None:
    """It serves all of KServe's protocols, and takes no other runtime's priority."""
    (runtime,) = of_kind(rendered["kserve", "base"], "ClusterServingRuntime")
    assert set(runtime["spec"]["protocolVersions"]) == kserve_webhook.PROTOCOLS
    assert not list(kserve_webhook.refusals(runtime, [*kserve_webhook.STOCK, runtime]))


@pytest.mark.parametrize("priorities", [(1, 1), (2, 2), (3, 3), (4, 5)])
def test_kserve_refuses_a_priority_that_another_has_and_different_ones(
    rendered: Rendered, priorities: tuple[int, int]
) -> None:
    (runtime,) = of_kind(copy.deepcopy(rendered["kserve", "base"]), "ClusterServingRuntime")
    for each, priority in zip(runtime["spec"]["supportedModelFormats"], priorities, strict=True):
        each["priority"] = priority
    assert list(kserve_webhook.refusals(runtime, kserve_webhook.STOCK))


# --- the test of the tests ---

SEEDED = [
    ("monitoring", "PodMonitor", "spec.podMetricsEndpoints.0.pth", "/metrics"),
    ("monitoring", "PodMonitor", "spec.podMetricsEndpoints.0.interval", "often"),
    ("monitoring", "PrometheusRule", "spec.groups.0.rules.0.exp", "up"),
    ("monitoring", "PrometheusRule", "spec.groups.0.rules.0.for", "a while"),
    ("autoscaling-keda", "ScaledObject", "spec.minReplicas", 2),
    ("autoscaling-keda", "ScaledObject", "spec.minReplicaCount", "two"),
    ("autoscaling-keda", "ScaledObject", "spec.triggers.0.metadata.threshold", 0.7),
    ("gateway", "HTTPRoute", "spec.rules.0.matches.0.path.type", "Prefix"),
    ("gateway", "HTTPRoute", "spec.rules.0.timeouts.request", "a minute"),
    ("gateway", "GRPCRoute", "spec.rules.0.backendRefs.0.port", 85000),
    ("kserve", "ClusterServingRuntime", "spec.containers.0.imge", "ferry"),
    ("kserve", "ClusterServingRuntime", "spec.supportedModelFormats.0.autoSelect", "yes"),
    ("kserve", "InferenceService", "spec.predictor.model.modelFormt", {"name": "tensorflow"}),
    ("kserve", "InferenceService", "spec.predictor.model.modelFormat", "tensorflow"),
]


@pytest.mark.parametrize(
    ("component", "kind", "place", "value"), SEEDED, ids=[f"{kind}-{place}" for _, kind, place, _ in SEEDED]
)
def test_seeded_faults_of_custom_resources_are_found(
    rendered: Rendered, component: str, kind: str, place: str, value: Any
) -> None:
    manifest = copy.deepcopy(next(of_kind(rendered[component, "base"], kind)))
    assert list(faults(manifest)) == []
    node: Any = manifest
    *steps, last = place.split(".")
    for step in steps:
        node = node[int(step) if step.isdigit() else step]
    node[last] = value
    assert list(faults(manifest))


def test_each_custom_resource_has_seeded_faults(rendered: Rendered) -> None:
    kinds = {each["kind"] for manifests in rendered.values() for each in manifests if is_custom(each)}
    assert kinds == {kind for _, kind, *_ in SEEDED}


def test_a_kind_without_a_schema_is_a_fault() -> None:
    assert list(faults({"apiVersion": "example.com/v1", "kind": "Thing"})) == ["no schema of example.com/v1 Thing"]
