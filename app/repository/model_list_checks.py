"""Checks of a new list of models before it replaces the served list. The error texts follow TensorFlow Serving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.core.errors import InvalidRequest, PreconditionFailed
from app.repository.catalog import Catalog
from app.repository.disk.disk_layout import DiskLayout
from app.repository.model_config import TENSORFLOW, ModelConfig


def check_names_and_paths(configs: Sequence[ModelConfig]) -> None:
    """Raises InvalidRequest unless every model has a unique name and an absolute base path without NUL characters."""
    names: set[str] = set()
    for config in configs:
        if not config.name:
            raise InvalidRequest("A model in the list has no name")
        if config.name in names:
            raise InvalidRequest(f"Illegal to list model {config.name} multiple times in config list")
        names.add(config.name)
        if not config.base_path.is_absolute():
            raise InvalidRequest(
                f"Expected model {config.name} to have an absolute local base_path, not {str(config.base_path)!r}"
            )
        if "\0" in str(config.base_path):
            raise InvalidRequest(f"Model {config.name} has a base_path with a NUL character; no file has such a name")


def check_platforms(served: Mapping[str, ModelConfig], configs: Sequence[ModelConfig]) -> None:
    """Raises PreconditionFailed if the platform of a served model changes, InvalidRequest if a platform is unknown."""
    for config in configs:
        served_platform = served.get(config.name, config).platform
        if served_platform != config.platform:
            raise PreconditionFailed(
                f"Illegal to change a model's platform. For model {config.name} platform was {served_platform} "
                f"and is now {config.platform}"
            )
        if config.platform != TENSORFLOW:
            raise InvalidRequest(f"Model {config.name} has platform {config.platform!r}; expected {TENSORFLOW!r}")


def check_labels(served: Mapping[str, ModelConfig], layout: DiskLayout, catalog: Catalog, allow_absent: bool) -> None:
    """Raises PreconditionFailed if a label names a version that is not available.

    The versions that a new model will load count as available.

    Args:
        served: the served list, by the names of the models.
        layout: the folders of the new list.
        allow_absent: whether a new label may name a version that is not available.
    """
    for config in layout.configs.values():
        served_labels = served[config.name].labels if config.name in served else {}
        # A model without an available version: the versions that its policy chooses now.
        available = catalog.available(config.name) or config.policy(layout.models.get(config.name, {}).keys())
        for label, version in config.labels.items():
            if allow_absent and served_labels.get(label, version) == version:
                continue
            if version not in available:
                raise PreconditionFailed(
                    f"Request to assign label {label} to version {version} of model {config.name}, "
                    "which is not currently available for inference"
                )
