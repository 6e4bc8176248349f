"""What must hold for manifests beyond YAML: each rule yields one sentence for each fault it finds.

A schema sees neither a selector that misses its pods, nor a port out of range, nor PodSecurity.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes_validate

from app.config.settings import Settings
from app.frontends.supervisor import END_WITHIN_S
from tests.deploy.components import custom_resources
from tests.deploy.manifests import Manifest, containers, environment, of_kind, pod_specs, pod_templates

KUBERNETES = "1.32"
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Rule = Callable[[list[Manifest]], Iterator[str]]


def follows_schema(manifests: list[Manifest]) -> Iterator[str]:
    """Strictly: unknown fields are faults, too."""
    for manifest in manifests:
        if custom_resources.is_custom(manifest):
            yield from custom_resources.faults(manifest)
            continue
        try:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{manifest['kind']}: {error.message}"


def names_are_dns_labels(manifests: list[Manifest]) -> Iterator[str]:
    names = [manifest["metadata"]["name"] for manifest in manifests]
    names += [container["name"] for container in containers(manifests)]
    yield from (f"{name!r} is no DNS label" for name in names if not DNS_LABEL.fullmatch(name))


def ports_exist(manifests: list[Manifest]) -> Iterator[str]:
    """Container ports are in range; what points at one finds it."""
    served: set[Any] = set()
    for container in containers(manifests):
        for port in container.get("ports", []):
            served |= {port["containerPort"], port.get("name")}
            if not 1 <= port["containerPort"] <= 65535:
                yield f"containerPort {port['containerPort']} is out of range"
    wanted = [probe["httpGet"]["port"] for probe in _probes(manifests)]
    for service in of_kind(manifests, "Service"):
        for port in service["spec"]["ports"]:
            wanted.append(port.get("targetPort", port["port"]))
            if not 1 <= port["port"] <= 65535:
                yield f"Service port {port['port']} is out of range"
    yield from (f"no container has port {port!r}" for port in wanted if port not in served)


def selectors_match(manifests: list[Manifest]) -> Iterator[str]:
    labels = [template["metadata"]["labels"] for template in pod_templates(manifests)]
    selectors = [service["spec"]["selector"] for service in of_kind(manifests, "Service")]
    for kind in ("Deployment", "PodDisruptionBudget"):
        selectors += [manifest["spec"]["selector"]["matchLabels"] for manifest in of_kind(manifests, kind)]
    for spec in pod_specs(manifests):
        selectors += [c["labelSelector"]["matchLabels"] for c in spec.get("topologySpreadConstraints", [])]
    for selector in selectors:
        if not selector or not any(selector.items() <= pod.items() for pod in labels):
            yield f"selector {selector} matches no pod template"


def references_exist(manifests: list[Manifest]) -> Iterator[str]:
    present = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    wanted = [("ServiceAccount", spec["serviceAccountName"]) for spec in pod_specs(manifests)]
    for scaler in of_kind(manifests, "HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        wanted.append((target["kind"], target["name"]))
    yield from (f"{kind} {name!r} is not among the manifests" for kind, name in wanted if (kind, name) not in present)


def pods_are_restricted(manifests: list[Manifest]) -> Iterator[str]:
    """The Pod Security Standard `restricted`, and a root file system that nobody writes to."""
    for spec in pod_specs(manifests):
        security = spec.get("securityContext", {})
        if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield "seccompProfile is not RuntimeDefault"
        if security.get("runAsNonRoot") is not True or security.get("runAsUser") == 0:
            yield "the pod may run as root"
        yield from (f"{field} is shared" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
        allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
        allowed |= {"image"}  # only read, and pulled as a container's image is
        for volume in spec.get("volumes", []):
            yield from (f"volume type {kind}" for kind in volume.keys() - {"name"} - (allowed | {"secret"}))
    for container in containers(manifests):
        yield from (f"container {container['name']}: {fault}" for fault in _container_faults(container))


def _container_faults(container: dict[str, Any]) -> Iterator[str]:
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield "privileges may escalate"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield "capabilities are not dropped"
    if security.get("readOnlyRootFilesystem") is not True:
        yield "the root file system can be written to"
    if security.get("privileged") or security.get("runAsUser") == 0 or security.get("runAsNonRoot") is False:
        yield "it may run as root"
    yield from ("hostPort is open" for port in container.get("ports", []) if port.get("hostPort"))


def resources_are_stated(manifests: list[Manifest]) -> Iterator[str]:
    for container in containers(manifests):
        for side in ("requests", "limits"):
            missing = {"cpu", "memory"} - container.get("resources", {}).get(side, {}).keys()
            yield from (f"container {container['name']} states no {name} {side}" for name in sorted(missing))


def why_it_ended_is_told(manifests: list[Manifest]) -> Iterator[str]:
    """Else the log alone says it: no event, and no last state of the container."""
    for container in containers(manifests):
        if container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            yield f"container {container['name']} ends without a message"


def drain_fits_the_grace_period(manifests: list[Manifest]) -> Iterator[str]:
    for spec in pod_specs(manifests):
        for container in spec["containers"]:
            command = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
            if command[:1] != ["sleep"]:
                yield f"container {container['name']} has no preStop pause"
                continue
            times = [_setting(container, name) for name in ("drain_grace_s", "drain_timeout_s")]
            needed = float(command[1]) + sum(times) + END_WITHIN_S
            if spec["terminationGracePeriodSeconds"] <= needed:
                yield f"the grace period {spec['terminationGracePeriodSeconds']} s does not outlast {needed} s"


def _setting(container: dict[str, Any], name: str) -> float:
    return float(environment(container).get(f"FERRY_{name.upper()}") or Settings.model_fields[name].default)


def settings_are_known(manifests: list[Manifest]) -> Iterator[str]:
    """Every FERRY_ variable is a setting, and no Service link poses as one."""
    known = {f"FERRY_{name.upper()}" for name in Settings.model_fields} | {"FERRY_CONFIG"}
    for container in containers(manifests):
        unknown = {name for name in environment(container) if name.startswith("FERRY_")} - known
        yield from (f"{name} is no setting" for name in sorted(unknown))
    for spec in pod_specs(manifests):
        if spec.get("enableServiceLinks") is not False:
            yield "service links put FERRY_PORT and the like into the environment"


def probes_are_complete(manifests: list[Manifest]) -> Iterator[str]:
    expected = {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
    for spec in pod_specs(manifests):
        for container in spec["containers"]:
            for name, path in expected.items():
                found = container.get(name, {}).get("httpGet", {}).get("path")
                if found != path:
                    yield f"{name} asks {found}, not {path}"


def _probes(manifests: list[Manifest]) -> Iterator[dict[str, Any]]:
    for container in containers(manifests):
        yield from (container[name] for name in container if name.endswith("Probe"))


RULES: tuple[Rule, ...] = (
    follows_schema,
    names_are_dns_labels,
    ports_exist,
    selectors_match,
    references_exist,
    pods_are_restricted,
    resources_are_stated,
    why_it_ended_is_told,
    drain_fits_the_grace_period,
    settings_are_known,
    probes_are_complete,
)
