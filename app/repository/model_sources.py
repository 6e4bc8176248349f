"""Where the list of models comes from: the subfolders of one folder, or a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from app.repository.disk_layout import DiskLayout, scan, subfolders
from app.repository.model_config import ModelConfig
from app.repository.version_policy import NEWEST, VersionPolicy


class ModelSource(Protocol):
    """Finds the models. Its text says where they come from."""

    def scan(self) -> DiskLayout:
        """Reads the disk, blocking.

        Raises:
            OSError: no folder could be read. One model that cannot be read does not affect the others.
        """


@dataclass(frozen=True, slots=True)
class ModelsFolder:
    """Each subfolder that holds a version folder is a model of that name."""

    folder: Path
    policy: VersionPolicy = NEWEST

    def scan(self) -> DiskLayout:
        layout = scan([ModelConfig(path.name, path, self.policy) for path in subfolders(self.folder)])
        return replace(layout, configs={name: layout.configs[name] for name in layout.models})

    def __str__(self) -> str:
        return str(self.folder)


@dataclass(frozen=True, slots=True)
class ModelList:
    """Exactly these models, wherever their folders are."""

    configs: Sequence[ModelConfig]

    def scan(self) -> DiskLayout:
        return scan(self.configs)

    def __str__(self) -> str:
        return "the list of models"
