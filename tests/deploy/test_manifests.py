"""The manifests of k8s/ keep every rule, as they stand and as kustomize renders them."""

from pathlib import Path

import pytest

from app.config.settings import Settings
from tests.deploy.manifests import BASE, GPU, MODELS_VOLUME, Manifest, containers, of_kind, pod_specs, read, render
from tests.deploy.rules import RULES, Rule

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)


@pytest.fixture(scope="module", params=[BASE, GPU], ids=lambda folder: folder.name)
def rendered(request: pytest.FixtureRequest) -> list[Manifest]:
    return render(request.param)


@pytest.fixture(scope="module")
def with_models_volume(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    folder = tmp_path_factory.mktemp("overlay")
    paths = [_relative(path, folder) for path in (BASE, MODELS_VOLUME)]
    (folder / "kustomization.yaml").write_text(f"resources: [{paths[0]}]\ncomponents: [{paths[1]}]\n")
    return render(folder)


def _relative(path: Path, folder: Path) -> str:
    """kustomize takes folders by relative path only."""
    return "/".join([".."] * len(folder.resolve().parts[1:])) + str(path)


@each_rule
def test_base_as_it_stands_keeps_the_rule(rule: Rule) -> None:
    assert list(rule(read(BASE))) == []


@each_rule
def test_rendered_manifests_keep_the_rule(rule: Rule, rendered: list[Manifest]) -> None:
    assert list(rule(rendered)) == []


@each_rule
def test_models_volume_keeps_the_rule(rule: Rule, with_models_volume: list[Manifest]) -> None:
    assert list(rule(with_models_volume)) == []


def test_models_volume_takes_the_place_of_the_shipped_models(with_models_volume: list[Manifest]) -> None:
    (container,) = containers(with_models_volume)
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {"models", "tmp"}


def test_base_holds_what_a_deployment_needs() -> None:
    kinds = {manifest["kind"] for manifest in read(BASE)}
    assert kinds == {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ServiceAccount"}


def test_container_listens_where_ferry_does() -> None:
    (container,) = containers(read(BASE))
    listens = [Settings.model_fields[name].default for name in ("rest_port", "grpc_port")]
    assert [port["containerPort"] for port in container["ports"]] == listens


def test_no_pod_is_taken_away_before_its_successor_is_ready() -> None:
    (deployment,) = of_kind(read(BASE), "Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert "replicas" not in deployment["spec"]  # the autoscaler's


def test_gpu_overlay_asks_for_a_gpu_and_the_image_that_uses_it() -> None:
    rendered = render(GPU)
    (container,) = containers(rendered)
    (spec,) = pod_specs(rendered)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["image"].endswith("-gpu")
    assert any(toleration["key"] == "nvidia.com/gpu" for toleration in spec["tolerations"])
