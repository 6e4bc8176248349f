"""Base and GPU overlay, with components, as kustomize renders them.

`python -m tests.deploy.components.overlays FOLDER` writes each to a file: in a namespace, and with images by digest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.deploy.manifests import BASE, GPU, ROOT, Manifest, render

BASES = (BASE, GPU)
COMPONENTS = sorted(path.parent.name for path in (ROOT / "k8s" / "components").glob("*/kustomization.yaml"))

_DIGEST = f"sha256:{'0' * 64}"
_AS_DEPLOYED = {
    "namespace": "ferry",
    "images": [
        {"name": name, "newName": f"registry.example.com/{name}", "newTag": "", "digest": _DIGEST}
        for name in ("ferry", "rclone/rclone")
    ],
}


def rendered_with(base: Path, components: Sequence[str], folder: Path, **more: Any) -> list[Manifest]:
    """`folder` gets the kustomization; `more` are fields of it."""
    up = "/".join([".."] * len(folder.resolve().parts[1:]))  # kustomize takes folders by relative path only
    listed = [f"{up}{ROOT}/k8s/components/{name}" for name in components]
    kustomization = {"resources": [f"{up}{base}"], "components": listed, **more}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return render(folder)


def as_deployed() -> Iterator[tuple[str, list[Manifest]]]:
    """Each base alone and with each component, by a name."""
    for base in BASES:
        for name in ("", *COMPONENTS):
            with TemporaryDirectory() as folder:
                components = [name] if name else []
                manifests = rendered_with(base, components, Path(folder), **_AS_DEPLOYED)
            yield "-".join(filter(None, (base.name, name))), manifests


def main(folder: Path) -> None:
    folder.mkdir()
    for name, manifests in as_deployed():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(manifests))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
