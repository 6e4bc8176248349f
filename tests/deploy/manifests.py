"""Kubernetes manifests as plain dictionaries: rendered with kustomize, or read as they stand."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.missing import skip_loudly

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "k8s" / "base"
GPU = ROOT / "k8s" / "overlays" / "gpu"
MODELS_VOLUME = ROOT / "k8s" / "components" / "models-volume"

Manifest = dict[str, Any]


def read(folder: Path) -> list[Manifest]:
    """The resources of a kustomization file, without kustomize: true of a base, not of an overlay."""
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [yaml.safe_load((folder / name).read_text()) for name in names]


@cache
def _renderer() -> list[str]:
    if shutil.which("kubectl"):
        return ["kubectl", "kustomize"]
    if not shutil.which("kustomize"):
        skip_loudly("neither kubectl nor kustomize is installed: the overlays are NOT checked")
    return ["kustomize", "build"]


def render(folder: Path) -> list[Manifest]:
    output = subprocess.run([*_renderer(), str(folder)], capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    return [manifest for manifest in yaml.safe_load_all(output.stdout) if manifest]


def of_kind(manifests: Iterable[Manifest], kind: str) -> Iterator[Manifest]:
    return (manifest for manifest in manifests if manifest["kind"] == kind)


def pod_templates(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    return (manifest["spec"]["template"] for manifest in of_kind(manifests, "Deployment"))


def pod_specs(manifests: Iterable[Manifest]) -> Iterator[dict[str, Any]]:
    return (template["spec"] for template in pod_templates(manifests))


def containers(manifests: Iterable[Manifest]) -> Iterator[dict[str, Any]]:
    for spec in pod_specs(manifests):
        yield from spec.get("initContainers", [])
        yield from spec["containers"]


def environment(container: dict[str, Any]) -> dict[str, str | None]:
    """Variables and their values; None where the cluster gives the value."""
    return {variable["name"]: variable.get("value") for variable in container.get("env", [])}
