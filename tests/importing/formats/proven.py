"""The export of a source that was read, proven as an import is, and its answers in Ferry's runtime."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path

from app.core.inference import Array, ModelSignature
from app.importing.export import export
from app.importing.order import ImportOrder
from app.importing.proof import Proof
from app.importing.source import Source
from app.runtime import RuntimeOptions, create_runtime


@cache
def _proof() -> Proof:
    return Proof()


def proven(source: Source, version: Path) -> Mapping[str, ModelSignature]:
    """The signatures of the export of a source into a folder. Raises CannotImport: it does not answer as the source."""
    export(source, version)
    return _proof().of(source, version, ImportOrder("", "")).signatures


def answers(version: Path, signature: str, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """The answers of a version in a runtime."""
    with closing(create_runtime("tensorflow", RuntimeOptions(replicas=1)).load(version)) as model:
        return model.run(signature, inputs, ())
