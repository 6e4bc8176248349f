"""The manifests on the pages: each overlay renders and keeps every rule, as if it lay beside a clone named `ferry`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy import rules
from tests.deploy.components.custom_resources import faults
from tests.deploy.manifests import ROOT, Manifest, containers, environment, of_kind, render

#: A file within an indented block of code: its name in a comment, then its lines.
FILE = re.compile(r"^( +)# ([\w-]+\.yaml)\n((?:\1.*\n|\n(?=\1(?!# )))+)", re.MULTILINE)


def files(name: str) -> Iterator[tuple[str, str]]:
    """Page and content of each file of this name."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        for indent, found, lines in FILE.findall(page.read_text()):
            if found == name:
                yield page.name, re.sub(f"^{indent}", "", lines, flags=re.MULTILINE)


OVERLAYS = list(files("kustomization.yaml"))


def rendered(text: str, folder: Path) -> list[Manifest]:
    up = "/".join([".."] * len(folder.resolve().parts[1:]))  # kustomize takes folders by relative path only
    (folder / "kustomization.yaml").write_text(text.replace("../ferry/k8s", f"{up}{ROOT}/k8s"))
    return render(folder)


@pytest.mark.parametrize("text", [text for _, text in OVERLAYS], ids=[page for page, _ in OVERLAYS])
def test_an_overlay_on_a_page_renders_and_keeps_every_rule(text: str, tmp_path: Path) -> None:
    manifests = rendered(text, tmp_path)
    assert [fault for rule in rules.RULES for fault in rule(manifests)] == []


def test_there_are_overlays_on_the_pages() -> None:
    assert {page for page, _ in OVERLAYS} == {"deploy.md", "load-balancers.md"}
    assert len(OVERLAYS) >= 5


def test_each_claim_on_a_page_follows_its_schema() -> None:
    claims = [yaml.safe_load(text) for _, text in files("claim.yaml")]
    assert claims
    assert list(rules.follows_schema(claims)) == []


def test_each_scaled_object_on_a_page_follows_its_schema_and_ends_at_no_pod() -> None:
    objects = [yaml.safe_load(text) for _, text in files("scaledobject.yaml")]
    assert len(objects) == 2
    assert [fault for each in objects for fault in faults(each)] == []
    assert {(each["spec"]["scaleTargetRef"]["name"], each["spec"]["minReplicaCount"]) for each in objects} == {
        ("ferry", 0)
    }


def test_the_models_store_of_the_page_has_its_source(tmp_path: Path) -> None:
    (text,) = (text for _, text in OVERLAYS if "my-bucket" in text)
    sources = {environment(each).get("SOURCE") for each in containers(rendered(text, tmp_path))}
    assert sources == {None, "store:my-bucket/models"}


def test_images_of_the_page_are_all_by_digest(tmp_path: Path) -> None:
    (text,) = (text for _, text in OVERLAYS if "rclone/rclone" in text)
    manifests = rendered(text, tmp_path)
    assert list(of_kind(manifests, "Deployment"))
    assert all("@sha256:" in each["image"] for each in containers(manifests))


def test_the_runtime_of_kserve_with_keys_reads_the_file_that_it_mounts(tmp_path: Path) -> None:
    (text,) = (text for _, text in OVERLAYS if "ClusterServingRuntime" in text)
    (runtime,) = of_kind(rendered(text, tmp_path), "ClusterServingRuntime")
    (container,) = runtime["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    (volume,) = runtime["spec"]["volumes"]
    assert mount["name"] == volume["name"]
    assert environment(container) == {"FERRY_ACCESS_FILE": f"{mount['mountPath']}/access.yaml"}
    assert "defaultMode" not in volume["secret"]  # there is no fsGroup by which the user 10001 could read it
