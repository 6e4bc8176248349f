"""Sources of models: the subfolders of one folder, or a list."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from app.repository.disk.disk_layout import DiskLayout, IgnoredFolder, scan, subfolders
from app.repository.disk.importable import import_command, importable_files
from app.repository.model_config import ModelConfig
from app.repository.version_policy import NEWEST, VersionPolicy


class ModelSource(Protocol):
    """A source of models. Its text names it."""

    def scan(self, silent: Collection[Path] = ()) -> DiskLayout:
        """Read the disk, blocking, but not the folders of models in `silent`.

        Raises:
            OSError: no folder could be read. One model that cannot be read does not affect the others.
        """


@dataclass(frozen=True, slots=True)
class ModelsFolder:
    """A folder whose subfolders with a version folder are models of their names."""

    folder: Path
    policy: VersionPolicy = NEWEST

    def scan(self, silent: Collection[Path] = ()) -> DiskLayout:
        found = [ModelConfig(path.name, path, self.policy) for path in subfolders(self.folder, silent)]
        layout = scan(found, silent)
        models = {
            name: each for name, each in layout.configs.items() if name in layout.models or each.base_path in silent
        }
        files = [IgnoredFolder(file, _why_no_folder(file)) for file in importable_files(self.folder)]
        none = not layout.models and not layout.unreadable
        return replace(layout, configs=models, ignored=layout.ignored | set(files), found_none=none)

    def __str__(self) -> str:
        return str(self.folder)


def _why_no_folder(file: Path) -> str:
    model = file.with_name(file.name.split(".", 1)[0])
    return f"it is a file, not a model's folder: {import_command(file, model)} makes a version of it"


@dataclass(frozen=True, slots=True)
class ModelList:
    """A list of models, wherever their folders are."""

    configs: Sequence[ModelConfig]

    def scan(self, silent: Collection[Path] = ()) -> DiskLayout:
        return scan(self.configs, silent)

    def __str__(self) -> str:
        return "the list of models"
