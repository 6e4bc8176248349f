"""The Helm chart that k8s/chart.py writes renders what kustomize renders.

`.ci/kubernetes` runs it, with helm on PATH (helm.py).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.chart import CHANGES, COMPONENTS, EITHER, INCLUDES, enabled, flag, render, write
from tests.deploy import rules
from tests.deploy.components.overlays import COMPONENTS as ALL
from tests.deploy.components.overlays import rendered_with
from tests.deploy.manifests import GPU, ROOT, Manifest, containers, environment, of_kind
from tests.support.missing import skip_loudly

#: Where one of several is wanted, all others go together.
ALL_BUT_EITHER = [name for name in COMPONENTS if name not in {other for group in EITHER for other in group[:-1]}]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("helm") is None:
        skip_loudly("helm is not installed: the chart is NOT rendered")
    folder = tmp_path_factory.mktemp("chart") / "ferry"
    write(folder)
    return folder


def helm(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["helm", *map(str, arguments)], capture_output=True, text=True, check=False)


def rendered(chart: Path, *options: object, on: Any = ()) -> dict[tuple[str, str], Manifest]:
    flags = [f"--set={enabled(name).removeprefix('.Values.')}=true" for name in on]
    run = helm("template", "ferry", chart, "--namespace=ferry", *flags, *options)
    assert run.returncode == 0, run.stderr
    manifests = [each for each in yaml.safe_load_all(run.stdout) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in manifests}


def test_every_component_is_a_flag() -> None:
    assert sorted(COMPONENTS) == ALL


@pytest.mark.parametrize("component", ["", *COMPONENTS])
def test_it_renders_what_kustomize_does(chart: Path, component: str) -> None:
    on = [component] if component else []
    assert rendered(chart, on=on) == render(on)


@pytest.mark.parametrize(
    "without", [[*INCLUDES], [each for included in INCLUDES.values() for each in included]], ids=str
)
def test_components_go_together(chart: Path, without: Sequence[str]) -> None:
    together = [name for name in ALL_BUT_EITHER if name not in without]
    assert rendered(chart, on=together) == render(together)


@pytest.mark.parametrize("changing", sorted(CHANGES))
def test_a_component_changes_what_another_adds(chart: Path, changing: str) -> None:
    together = [*CHANGES[changing], changing]
    assert rendered(chart, on=together) == render(together)


def test_values_for_a_gpu_render_the_overlay(chart: Path) -> None:
    assert rendered(chart, "--values", chart / "values-gpu.yaml") == render(base=GPU)


def test_a_component_for_autoscaling_owns_the_count_of_pods_with_gpus_too(chart: Path, tmp_path: Path) -> None:
    expected = rendered_with(GPU, ["autoscaling-keda"], tmp_path)
    made = rendered(chart, "--values", chart / "values-gpu.yaml", on=["autoscaling-keda"])
    assert made == {(each["kind"], each["metadata"]["name"]): each for each in expected}


def test_a_count_beside_an_autoscaler_is_told(chart: Path) -> None:
    run = helm("template", "ferry", chart, "--set=replicas=0")
    assert run.returncode != 0
    assert "the autoscaler owns the count" in run.stderr
    made = rendered(chart, "--set=replicas=0", "--set=autoscaler.enabled=false")
    assert made["Deployment", "ferry"]["spec"]["replicas"] == 0


def test_it_is_written_anew(chart: Path) -> None:
    (chart / "templates" / "old.yaml").write_text("{{ fail }}")
    before = rendered_files(chart)
    write(chart)
    assert rendered_files(chart) == before - {"old.yaml"}


def rendered_files(chart: Path) -> set[str]:
    return {file.name for file in (chart / "templates").iterdir()}


@pytest.mark.parametrize("group", EITHER, ids=str)
def test_components_that_exclude_each_other_are_told(chart: Path, group: tuple[str, ...]) -> None:
    flags = [f"--set=components.{flag(name)}.enabled=true" for name in group[:2]]
    run = helm("template", "ferry", chart, *flags)
    assert run.returncode != 0
    assert "only one can be enabled" in run.stderr


@pytest.mark.parametrize("wrong", ["replica=3", "components.monitorng.enabled=true", "replicas=many", "env.A=b"])
def test_a_wrong_value_is_told(chart: Path, wrong: str) -> None:
    run = helm("template", "ferry", chart, f"--set={wrong}")
    assert run.returncode != 0
    assert "schema" in run.stderr


def test_the_chart_is_without_fault_for_helm(chart: Path) -> None:
    run = helm("lint", "--strict", chart)
    assert run.returncode == 0, run.stdout


OWN = """
image: {repository: registry.example.com/ferry, digest: "sha256:0123"}
replicas: 3
autoscaler: {enabled: false}
env: [{name: FERRY_MAX_BATCH_SIZE, value: "128"}]
resources: {limits: {memory: 8Gi}}
nodeSelector: {disk: ssd}
serviceAccount: {annotations: {eks.amazonaws.com/role-arn: arn}}
components:
  kserve: {enabled: true}
  modelsStore: {enabled: true, source: "store:mine", secret: mine}
  monitoring: {enabled: true}
  mutualTls: {enabled: true, clientCa: my-clients}
  tls: {secret: my-tls}
"""


def test_values_arrive_where_they_belong(chart: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    made = rendered(chart, "--values", tmp_path / "own.yaml", "--namespace=elsewhere")
    manifests = list(made.values())
    assert [fault for rule in rules.RULES for fault in rule(manifests)] == []
    deployment = made["Deployment", "ferry"]["spec"]
    spec = deployment["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == "registry.example.com/ferry@sha256:0123"
    assert made["ClusterServingRuntime", "ferry"]["spec"]["containers"][0]["image"] == container["image"]
    assert deployment["replicas"] == 3
    assert not list(of_kind(manifests, "HorizontalPodAutoscaler"))
    assert environment(container)["FERRY_MAX_BATCH_SIZE"] == "128"
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "8Gi"}
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert made["ServiceAccount", "ferry"]["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn"}
    assert {environment(each)["SOURCE"] for each in containers(manifests) if each["name"] != "ferry"} == {"store:mine"}
    assert {"configMap": {"name": "my-clients"}, "name": "client-ca"} in spec["volumes"]
    assert {"secret": {"secretName": "my-tls", "defaultMode": 0o440}, "name": "tls"} in spec["volumes"]
    (endpoint,) = made["PodMonitor", "ferry"]["spec"]["podMetricsEndpoints"]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == "my-tls"
    assert {"secret": {"secretName": "mine", "defaultMode": 0o440}, "name": "models-store-config"} in spec["volumes"]


def test_queries_ask_for_the_namespace_of_the_release(chart: Path) -> None:
    made = rendered(chart, "--namespace=elsewhere", on=["autoscaling-keda"])
    text = yaml.safe_dump(made["ScaledObject", "ferry"])
    assert 'namespace="elsewhere"' in text
    assert 'namespace="ferry"' not in text


def test_values_that_the_page_sets_are_values(chart: Path) -> None:
    """Where it installs or upgrades a release, the same arguments render."""
    page = (ROOT / "docs/deploy.md").read_text()
    lines = re.findall(r"^    helm (?:install|upgrade) (ferry chart/ferry .*)$", page, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        words = line.replace("chart/ferry", str(chart)).replace(" --reuse-values", "").split()
        run = helm("template", *words)
        assert run.returncode == 0, run.stderr
