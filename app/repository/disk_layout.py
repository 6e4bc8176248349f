"""Finds the versions of each model on disk: `<base path>/<version>/saved_model.pb`. Keeps no state."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.repository.model_config import ModelConfig

MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")

#: Name, size in bytes and modification time in nanoseconds of every file below a folder.
Fingerprint = frozenset[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class IgnoredFolder:
    """A folder from which nothing is served, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The complete versions of one model by number. `empty`: no subfolder has the name of a version."""

    versions: Mapping[int, Path]
    ignored: tuple[IgnoredFolder, ...]
    empty: bool


@dataclass(frozen=True, slots=True)
class DiskLayout:
    """What one poll found on disk.

    configs: the wanted models, by name.
    models: the complete versions of each model that has a version folder, complete or not.
    unreadable: the models whose folders could not be read. Nothing is known about them.
    """

    configs: Mapping[str, ModelConfig] = field(default_factory=dict)
    models: Mapping[str, Mapping[int, Path]] = field(default_factory=dict)
    ignored: frozenset[IgnoredFolder] = frozenset()
    unreadable: frozenset[str] = frozenset()

    def without(self, names: Collection[str]) -> DiskLayout:
        configs = {name: config for name, config in self.configs.items() if name not in names}
        models = {name: versions for name, versions in self.models.items() if name not in names}
        return replace(self, configs=configs, models=models, unreadable=self.unreadable.difference(names))


def scan(configs: Iterable[ModelConfig]) -> DiskLayout:
    """Reads the folder of every model. A folder that cannot be read does not affect the others."""
    models: dict[str, Mapping[int, Path]] = {}
    ignored: set[IgnoredFolder] = set()
    unreadable: set[str] = set()
    by_name: dict[str, ModelConfig] = {}
    for config in configs:
        if _is_unicode(config.name):
            by_name[config.name] = config
        else:  # no status page could print it
            ignored.add(IgnoredFolder(config.base_path, "its name is not valid UTF-8"))
    for name, config in by_name.items():
        try:
            model = scan_model(config.base_path)
        except OSError as error:
            unreadable.add(name)
            ignored.add(IgnoredFolder(config.base_path, f"cannot be read: {error.strerror}"))
            continue
        ignored.update(model.ignored)
        if model.empty:
            ignored.add(IgnoredFolder(config.base_path, _why_no_model(config.base_path)))
        else:
            models[name] = model.versions
    return DiskLayout(by_name, models, frozenset(ignored), frozenset(unreadable))


def scan_model(folder: Path) -> ModelFolder:
    """Reads one model's folder. Of two complete folders with the same number the last by name is used.

    Raises:
        OSError: the folder cannot be read.
    """
    versions: dict[int, Path] = {}
    ignored: list[IgnoredFolder] = []
    empty = True
    for path in subfolders(folder):
        version = version_number(path.name)
        if version is None:
            ignored.append(IgnoredFolder(path, "its name is not a version: a whole number from 0 to 2^63-1"))
            continue
        empty = False
        if missing := missing_part(path):
            ignored.append(IgnoredFolder(path, missing))
            continue
        if twin := versions.get(version):
            ignored.append(
                IgnoredFolder(twin, f"{path.name} has the same version number {version} and is used instead")
            )
        versions[version] = path
    return ModelFolder(versions, tuple(ignored), empty)


def version_number(name: str) -> int | None:
    """The version that a folder's name means ('00001' is 1); None if it is not a version."""
    digits = re.fullmatch("0*([0-9]{1,19})", name)
    number = int(digits[1]) if digits else -1
    return number if 0 <= number < 2**63 else None


def missing_part(version: Path) -> str:
    """What is missing in a version's folder; empty if it is complete."""
    if any((version / name).is_file() for name in MODEL_FILES):
        return ""
    return f"it holds no {MODEL_FILES[0]}"


def fingerprint(version: Path) -> Fingerprint:
    """Changes whenever a file below the folder is created, deleted or written."""
    files = set()
    for parent, _, names in os.walk(version):
        for path in (Path(parent, name) for name in names):
            with suppress(OSError):  # it was deleted meanwhile: the next poll shows it
                stat = path.stat()
                files.add((str(path.relative_to(version)), stat.st_size, stat.st_mtime_ns))
    return frozenset(files)


def subfolders(folder: Path) -> list[Path]:
    """Sorted by name. Folders whose names begin with a dot are left out: unfinished copies, or of other programs."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    return [folder / name for name in names]


def _is_unicode(name: str) -> bool:
    """Linux allows any bytes as a name; Python reads those that are not UTF-8 as halves of surrogate pairs."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _why_no_model(folder: Path) -> str:
    if not missing_part(folder):
        return f"it holds {MODEL_FILES[0]} itself; a models folder is <name>/<version>/{MODEL_FILES[0]}"
    return "it holds no version folder, named by a whole number"
