"""The layout of the disk: the versions of models, `<base path>/<version>/saved_model.pb`, TFLite models, or pipelines.

No state.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from heapq import nlargest
from pathlib import Path
from stat import S_ISDIR
from typing import NamedTuple

from app.model_files import MODEL_FILES, NO_MODEL
from app.repository.disk.importable import how_to_import
from app.repository.disk.storage_process import at
from app.repository.model_config import ModelConfig

#: The file of a pipeline, in a version's folder in place of a graph (app/pipelines).
PIPELINE_FILE = "pipeline.yaml"

#: Names of folders that Python and file systems make anywhere; no model has such a name.
_OF_OTHERS = frozenset({"__pycache__", "lost+found"})

#: Bytes that are read of a pipeline's file: more than it may have.
_MOST_PIPELINE_BYTES = 1 << 17

#: Name, size in bytes and modification time in nanoseconds of every file below a folder.
Fingerprint = frozenset[tuple[str, int, int]]


class VersionFiles(NamedTuple):
    """The files of a version at one time.

    fingerprint: it changes if a file below the folder is created, deleted or written.
    newest_ns: the last change of a file or a folder.
    """

    fingerprint: Fingerprint
    newest_ns: int


@dataclass(frozen=True, slots=True)
class IgnoredFolder:
    """A folder that is not served, and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The folder of one model.

    versions: by number, the folders that hold a graph.
    incomplete: by number, the missing part of each other version folder.
    empty: whether no subfolder has the name of a version.
    """

    versions: Mapping[int, Path]
    incomplete: Mapping[int, str]
    ignored: tuple[IgnoredFolder, ...]
    empty: bool


@dataclass(frozen=True, slots=True)
class DiskLayout:
    """The layout of the disk at one poll.

    configs: the wanted models, by name.
    models: by model with a version folder, the versions that hold a graph.
    incomplete: by model and number, the missing part of each other version.
    unreadable: the models whose folders could not be read, and whose versions are unknown.
    files: the files of the newest versions of each model, by folder.
    empty: the models whose folders hold no version folder at all, complete or not.
    found_none: whether the models folder exists and holds no model.
    """

    configs: Mapping[str, ModelConfig] = field(default_factory=dict)
    models: Mapping[str, Mapping[int, Path]] = field(default_factory=dict)
    ignored: frozenset[IgnoredFolder] = frozenset()
    unreadable: frozenset[str] = frozenset()
    incomplete: Mapping[str, Mapping[int, str]] = field(default_factory=dict, compare=False)
    files: Mapping[Path, VersionFiles] = field(default_factory=dict, compare=False)
    empty: frozenset[str] = field(default=frozenset(), compare=False)
    found_none: bool = field(default=False, compare=False)

    def why_unreadable(self, model: str) -> str:
        folder = self.configs[model].base_path
        return next((f"{folder} {each.reason}" for each in self.ignored if each.path == folder), f"{folder} is empty")

    def without(self, names: Collection[str]) -> DiskLayout:
        configs = {name: config for name, config in self.configs.items() if name not in names}
        models = {name: versions for name, versions in self.models.items() if name not in names}
        return replace(self, configs=configs, models=models, unreadable=self.unreadable.difference(names))


def scan(configs: Iterable[ModelConfig], silent: Collection[Path] = ()) -> DiskLayout:
    """The layout of these models. A folder that cannot be read does not affect the others.

    `silent`: folders that are not touched, because their storage does not answer.
    """
    models: dict[str, Mapping[int, Path]] = {}
    incomplete: dict[str, Mapping[int, str]] = {}
    files: dict[Path, VersionFiles] = {}
    ignored: set[IgnoredFolder] = set()
    unreadable: set[str] = set()
    empty: set[str] = set()
    by_name: dict[str, ModelConfig] = {}

    # 1. Models by name.
    for config in configs:
        if _is_unicode(config.name):
            by_name[config.name] = config
        else:  # no status page could print it
            ignored.add(IgnoredFolder(config.base_path, "its name is not valid UTF-8"))

    for name, config in by_name.items():
        # 2. The folder of each, and the files of its newest versions; if it cannot be read, its versions are unknown.
        if config.base_path in silent:
            unreadable.add(name)
            ignored.add(IgnoredFolder(config.base_path, "its storage does not answer"))
            continue
        at(config.base_path)
        try:
            model = scan_model(config.base_path)
            wanted = [model.versions[number] for number in nlargest(2, model.versions)]  # most likely
            files |= {folder: version_files(folder) for folder in wanted}
        except OSError as error:
            unreadable.add(name)
            ignored.add(IgnoredFolder(config.base_path, f"cannot be read: {error.strerror}"))
            continue

        # 3. Its versions; without any version folder it is no model yet.
        ignored.update(model.ignored)
        if model.empty and not model.incomplete:
            empty.add(name)
            ignored.add(IgnoredFolder(config.base_path, _why_no_model(config.base_path)))
        else:
            models[name], incomplete[name] = model.versions, model.incomplete
    return DiskLayout(by_name, models, frozenset(ignored), frozenset(unreadable), incomplete, files, frozenset(empty))


def scan_model(folder: Path) -> ModelFolder:
    """The folder of one model. Of two complete folders with the same number the last by name is used.

    If it holds no folder, but what can be imported, version 1 is missing, with the command that makes it.

    Raises:
        OSError: the folder cannot be read.
    """
    versions: dict[int, Path] = {}
    incomplete: dict[int, str] = {}
    ignored: list[IgnoredFolder] = []
    empty = True
    for path in subfolders(folder):
        version = version_number(path.name)
        if version is None:
            ignored.append(IgnoredFolder(path, "its name is not a version: a whole number from 0 to 2^63-1"))
            continue
        empty = False
        if missing := missing_graph(path):
            ignored.append(IgnoredFolder(path, missing))
            incomplete[version] = missing
            continue
        if twin := versions.get(version):
            ignored.append(
                IgnoredFolder(twin, f"{path.name} has the same version number {version} and is used instead")
            )
        versions[version] = path
    if empty and not ignored and (command := how_to_import(folder, folder)):
        incomplete[1] = command
        ignored.append(IgnoredFolder(folder, command))
    incomplete = {number: missing for number, missing in incomplete.items() if number not in versions}
    return ModelFolder(versions, incomplete, tuple(ignored), empty)


def version_number(name: str) -> int | None:
    """The version in the name of a folder ('00001' is 1); None if the name is no version."""
    digits = re.fullmatch("0*([0-9]{1,19})", name)
    number = int(digits[1]) if digits else -1
    return number if 0 <= number < 2**63 else None


def missing_graph(version: Path) -> str:
    """The fault of a version folder without graph and pipeline; empty if it has one. intake.py checks the rest."""
    if any((version / name).is_file() for name in (*MODEL_FILES, PIPELINE_FILE)):
        return ""
    return how_to_import(version, version.parent) or NO_MODEL


def graph_beside_pipeline(version: Path) -> str:
    """The fault of a version folder with both a pipeline and a graph; empty if there is no graph."""
    graphs = [name for name in MODEL_FILES if (version / name).exists()]
    return f"it holds both {graphs[0]} and {PIPELINE_FILE}, and may hold one of them" if graphs else ""


def is_pipeline(files: Fingerprint) -> bool:
    return any(name == PIPELINE_FILE for name, _, _ in files)


def read_pipeline(version: Path) -> bytes:
    """The text of a pipeline. Raises OSError."""
    at(version)
    with (version / PIPELINE_FILE).open("rb") as file:
        return file.read(_MOST_PIPELINE_BYTES)


def version_files(version: Path) -> VersionFiles:
    """The files of a version, links followed. A file that is deleted meanwhile is left out."""
    files, newest_ns = set(), 0
    for path, stat in walk(version):
        if not S_ISDIR(stat.st_mode):
            files.add((str(path.relative_to(version)), stat.st_size, stat.st_mtime_ns))
        newest_ns = max(newest_ns, stat.st_mtime_ns, stat.st_ctime_ns)
    return VersionFiles(frozenset(files), newest_ns)


def walk(version: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The folder and all files and folders below it, links followed.

    The content of a folder comes once, even if the folder has several names, so loops end.
    """
    seen: set[tuple[int, int]] = set()
    folders = [version]
    while folders:
        folder = folders.pop()
        with suppress(OSError):
            stat = folder.stat()
            yield folder, stat
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            for name in sorted(os.listdir(folder)):
                with suppress(OSError):
                    path = folder / name
                    stat = path.stat()
                    if S_ISDIR(stat.st_mode):
                        folders.append(path)
                    else:
                        yield path, stat


def subfolders(folder: Path, silent: Collection[Path] = ()) -> list[Path]:
    """The subfolders, sorted by name, without those whose names begin with a dot: unfinished copies and the like."""
    at(folder)
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.name not in _OF_OTHERS]
    paths = sorted(folder / name for name in names)
    return [path for path in paths if path in silent or _is_folder(path)]


def _is_folder(path: Path) -> bool:
    at(path)  # a link may lead to other storage
    return path.is_dir()


def _is_unicode(name: str) -> bool:
    """Whether a name is UTF-8. Linux allows any bytes; Python reads others as halves of surrogate pairs."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _why_no_model(folder: Path) -> str:
    for file in (*MODEL_FILES, PIPELINE_FILE):
        if (folder / file).is_file():
            return f"it holds {file} itself; a models folder is <name>/<version>/{file}"
    return "it holds no version folder, named by a whole number"
