"""The tests of the tests: each seeded fault is found by the rule that is there for it."""

import copy
from typing import Any

import pytest

from tests.deploy import rules
from tests.deploy.manifests import BASE, Manifest, of_kind, read

POD = "Deployment.spec.template.spec"
CONTAINER = f"{POD}.containers.0"

FAULTS = [
    (rules.follows_schema, f"{CONTAINER}.imagePullPolice", "Always", "imagePullPolice"),
    (rules.follows_schema, f"{CONTAINER}.readinessProbe.httpGet.pth", "/readyz", "pth"),
    (rules.follows_schema, "Service.spec.ports.0.port", "8501", "8501"),
    (rules.follows_schema, "HorizontalPodAutoscaler.spec.minReplicas", "two", "two"),
    (rules.names_are_dns_labels, "Service.metadata.name", "Ferry_Service", "Ferry_Service"),
    (rules.ports_exist, f"{CONTAINER}.ports.0.containerPort", 85010, "85010"),
    (rules.ports_exist, f"{CONTAINER}.livenessProbe.httpGet.port", 8502, "8502"),
    (rules.ports_exist, "Service.spec.ports.0.targetPort", "rest", "rest"),
    (rules.ports_exist, "Service.spec.ports.0.port", 0, "out of range"),
    (rules.selectors_match, "Service.spec.selector", {"app": "ferry"}, "'app'"),
    (rules.selectors_match, "PodDisruptionBudget.spec.selector.matchLabels", {}, "{}"),
    (rules.selectors_match, "Deployment.spec.template.metadata.labels", {"app": "other"}, "matches no pod"),
    (rules.references_exist, f"{POD}.serviceAccountName", "fery", "fery"),
    (rules.references_exist, "HorizontalPodAutoscaler.spec.scaleTargetRef.name", "fery", "fery"),
    (rules.pods_are_restricted, f"{POD}.securityContext.runAsNonRoot", False, "root"),
    (rules.pods_are_restricted, f"{POD}.securityContext.seccompProfile.type", "Unconfined", "seccomp"),
    (rules.pods_are_restricted, f"{POD}.hostNetwork", True, "hostNetwork"),
    (rules.pods_are_restricted, f"{POD}.volumes.0.hostPath", {"path": "/"}, "hostPath"),
    (rules.pods_are_restricted, f"{POD}.initContainers", [{"name": "fetch", "image": "fetch"}], "fetch"),
    (rules.pods_are_restricted, f"{CONTAINER}.securityContext.allowPrivilegeEscalation", True, "escalate"),
    (rules.pods_are_restricted, f"{CONTAINER}.securityContext.capabilities.add", ["NET_ADMIN"], "capabilities"),
    (rules.pods_are_restricted, f"{CONTAINER}.securityContext.readOnlyRootFilesystem", False, "written"),
    (rules.pods_are_restricted, f"{CONTAINER}.securityContext.privileged", True, "root"),
    (rules.pods_are_restricted, f"{CONTAINER}.ports.0.hostPort", 80, "hostPort"),
    (rules.resources_are_stated, f"{CONTAINER}.resources.limits", {"cpu": "1"}, "memory"),
    (rules.why_it_ended_is_told, f"{CONTAINER}.terminationMessagePolicy", "File", "without a message"),
    (rules.drain_fits_the_grace_period, f"{POD}.terminationGracePeriodSeconds", 40, "40"),
    (rules.drain_fits_the_grace_period, f"{CONTAINER}.env.0.value", "300", "329.5"),
    (rules.drain_fits_the_grace_period, f"{CONTAINER}.env.1.value", "8", "64.5"),
    (rules.drain_fits_the_grace_period, f"{CONTAINER}.lifecycle.preStop.exec.command.1", "25", "outlast"),
    (rules.drain_fits_the_grace_period, f"{CONTAINER}.lifecycle", {}, "no preStop"),
    (rules.settings_are_known, f"{CONTAINER}.env.0.name", "FERRY_DRAIN_TIMEOUT", "FERRY_DRAIN_TIMEOUT"),
    (rules.settings_are_known, f"{POD}.enableServiceLinks", True, "FERRY_PORT"),
    (rules.probes_are_complete, f"{CONTAINER}.livenessProbe.httpGet.path", "/readyz", "/readyz"),
    (rules.probes_are_complete, f"{CONTAINER}.startupProbe", {}, "None"),
]


def seed(manifests: list[Manifest], place: str, value: Any) -> list[Manifest]:
    """A copy with `value` at `place`: a kind, then keys and list positions."""
    manifests = copy.deepcopy(manifests)
    kind, *steps, last = place.split(".")
    node, *_ = of_kind(manifests, kind)
    for step in steps:
        node = node[int(step)] if isinstance(node, list) else node[step]
    node[int(last) if isinstance(node, list) else last] = value
    return manifests


@pytest.mark.parametrize(
    ("rule", "place", "value", "told"), FAULTS, ids=[f"{rule.__name__}-{place}" for rule, place, *_ in FAULTS]
)
def test_seeded_fault_is_found(rule: rules.Rule, place: str, value: Any, told: str) -> None:
    faults = list(rule(seed(read(BASE), place, value)))
    assert any(told in fault for fault in faults), faults


def test_every_rule_has_a_seeded_fault() -> None:
    assert {rule for rule, *_ in FAULTS} == set(rules.RULES)
