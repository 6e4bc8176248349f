"""Checks of a list of models that is to replace the served one. Errors are TensorFlow Serving's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.core.errors import InvalidRequest, PreconditionFailed
from app.repository.catalog import Catalog
from app.repository.disk.disk_layout import DiskLayout
from app.repository.model_config import TENSORFLOW, ModelConfig


def check_list(configs: Sequence[ModelConfig]) -> None:
    """Raises InvalidRequest unless every model has a unique name and an absolute base path that a file can have."""
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


def check_platforms(old: Mapping[str, ModelConfig], new: Sequence[ModelConfig]) -> None:
    """Raises PreconditionFailed if the platform of a served model changes, InvalidRequest if a platform is unknown."""
    for config in new:
        before = old.get(config.name, config).platform
        if before != config.platform:
            raise PreconditionFailed(
                f"Illegal to change a model's platform. For model {config.name} platform was {before} "
                f"and is now {config.platform}"
            )
        if config.platform != TENSORFLOW:
            raise InvalidRequest(f"Model {config.name} has platform {config.platform!r}; expected {TENSORFLOW!r}")


def check_labels(old: Mapping[str, ModelConfig], new: DiskLayout, catalog: Catalog, new_anywhere: bool) -> None:
    """Raises PreconditionFailed if a label names a version that is not available and will not be with its new model.

    With `new_anywhere` new labels may do so.
    """
    for config in new.configs.values():
        known = old[config.name].labels if config.name in old else {}
        # For a model that is not served yet, the versions that will be loaded first count.
        available = catalog.available(config.name) or config.policy(new.models.get(config.name, {}).keys())
        for label, version in config.labels.items():
            if new_anywhere and known.get(label, version) == version:
                continue
            if version not in available:
                raise PreconditionFailed(
                    f"Request to assign label {label} to version {version} of model {config.name}, "
                    "which is not currently available for inference"
                )
