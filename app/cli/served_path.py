"""`ferry serve PATH`: the models folder that serves what lies at a path, as it is or imported into the user's cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from app.cli.import_model import run_import
from app.config.sources import SettingsError
from app.importing.import_cache import ImportCache, import_key, link_key
from app.importing.in_child import kind_or_refusal
from app.importing.order import CannotImport, ImportOrder
from app.importing.version_folder import model_name
from app.model_files import MODEL_FILES
from app.repository.disk.disk_layout import PIPELINE_FILE, missing_graph, scan_model, version_number
from app.repository.disk.importable import format_of
from app.runtimes.tensorflow.saved_model.files import has_signatures
from app.runtimes.tensorflow.variants.variant_cache import default_folder


@contextmanager
def served_path(path: Path) -> Iterator[Path]:
    """The models folder for what lies at `path`, while the context lasts.

    Raises:
        SettingsError: nothing lies there.
        CannotImport: it is no model, and none can be made of it; the text names the command that has options.
        OSError: it cannot be read, or the cache not be written.
    """
    if not path.exists():
        raise SettingsError(f"there is no file or folder {path}")
    path = Path(os.path.abspath(path))
    if path.name in {*MODEL_FILES, PIPELINE_FILE} and path.is_file():
        path = path.parent
    if path.is_dir() and _is_servable(path):
        with _linked(path) as folder:
            yield folder
    elif path.is_dir() and scan_model(path).versions:
        with _cache().models_folder(link_key(path), path.name, lambda link: link.symlink_to(path)) as folder:
            yield folder
    elif source := _source(path):
        with _imported(source) as folder:
            yield folder
    else:
        yield path


def _source(path: Path) -> Path | None:
    """The source to import: the path itself, or the only file of a folder; None for a models folder."""
    if not path.is_dir() or format_of(path):
        return path
    return path / files[0] if len(files := os.listdir(path)) == 1 and format_of(path / files[0]) else None


def _is_servable(folder: Path) -> bool:
    """Whether a folder is a version that is served as it is: a pipeline, or a graph with signatures."""
    graph = folder / "saved_model.pb"
    return not missing_graph(folder) and (not graph.is_file() or has_signatures(graph))


@contextmanager
def _linked(version: Path) -> Iterator[Path]:
    """A models folder in which a link leads to this version."""
    is_numbered = version_number(version.name) is not None
    place = f"{version.parent.name or 'model'}/{version.name}" if is_numbered else f"{model_name(version)}/1"

    def link(at: Path) -> None:
        at.parent.mkdir(exist_ok=True)
        at.symlink_to(version)

    with _cache().models_folder(link_key(version), place, link) as folder:
        yield folder


@contextmanager
def _imported(path: Path) -> Iterator[Path]:
    """A models folder that holds the import of a source."""
    kind = kind_or_refusal(path, format_of(path))

    def make(version: Path) -> None:
        order = ImportOrder(str(path), str(version))
        try:
            _, line = run_import(order, kind, version.parent.name)
            typer.echo(line, err=True)
        except CannotImport as error:
            if "--" not in str(error):
                raise
            raise CannotImport(f"{error}; the option is one of 'ferry import {path}'") from None

    with _cache().models_folder(import_key(path), f"{model_name(path)}/1", make) as folder:
        yield folder


def _cache() -> ImportCache:
    folder = default_folder()
    if folder is None:
        raise SettingsError("there is no cache folder for an import: set XDG_CACHE_HOME or HOME, or use 'ferry import'")
    return ImportCache(folder / "imported")
