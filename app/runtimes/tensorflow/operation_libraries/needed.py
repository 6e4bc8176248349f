"""The libraries that a graph needs, found by its operations: `needed_libraries`; those of the setting: `named_library`.

TensorFlow refuses a whole graph with one operation that is not registered. So each function of a SavedModel counts,
whether a signature calls it or not; the nodes outside of functions count in graphs of TensorFlow 1, whose functions
are not loaded one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow.operation_libraries.known_libraries import Library, known_as, libraries_of
from app.runtimes.tensorflow.operation_libraries.shared_libraries import (
    LIBRARIES_HERE,
    LibraryUnusable,
    Loadable,
    LoadedLibraries,
    forget_found_modules,
)
from app.runtimes.tensorflow.private_api import operation_definition


class OperationsMissing(ValueError):
    """A graph needs operations that no library has which could be loaded. The text says what to install."""


def missing_operations(meta_graph: Any) -> Sequence[str]:
    """The operations of a MetaGraphDef that are not registered in this process, sorted."""
    if operation_definition("NoOp") is None:  # without definitions TensorFlow says so by itself
        return ()
    graph = meta_graph.graph_def
    functions = {function.signature.name for function in graph.library.function}
    used = {node.op for function in graph.library.function for node in function.node_def}
    if not meta_graph.HasField("object_graph_def"):
        used |= {node.op for node in graph.node}
    return sorted([each for each in used - functions if operation_definition(each) is None])


def needed_libraries(meta_graph: Any) -> Mapping[Loadable, Sequence[str]]:
    """The installed libraries that a graph needs, each with the operations that it should bring.

    Raises OperationsMissing: an operation is in no library that is installed and fits this TensorFlow.
    """
    needed: dict[Loadable, list[str]] = {}
    for operation in missing_operations(meta_graph):
        needed.setdefault(_library_of(operation), []).append(operation)
    return needed


def load_needed(
    needed: Mapping[Loadable, Sequence[str]], model: str, libraries: LoadedLibraries = LIBRARIES_HERE
) -> None:
    """Loads libraries for a model. Raises LibraryUnusable, OperationsMissing: one fails, or lacks an operation."""
    for library, operations in needed.items():
        more = f" and {len(operations) - 1} more" if len(operations) > 1 else ""
        libraries.load(library, f"for the operations of {model}: {operations[0]}{more}")
        if lacking := [each for each in operations if operation_definition(each) is None]:
            raise OperationsMissing(
                f"its operation {lacking[0]} is not in {library.title}: another version may have it"
            )


def _library_of(operation: str) -> Loadable:
    known = list(libraries_of(operation))
    for library in known:
        if found := installed(library):
            return found
    raise OperationsMissing(_advice(operation, known))


def installed(library: Library, *, of_any_version: bool = False) -> Loadable | None:
    """The library as it is installed; None if it is not, or does not fit this TensorFlow."""
    found = _version_of(library)
    if not found or not (of_any_version or library.fits(found, tf.__version__)):
        return None
    files = [str(path) for folder in _folders(library.module) for each in library.files for path in folder.glob(each)]
    return Loadable(f"{library.package} {found}", tuple(sorted(files))) if files else None


def _version_of(library: Library) -> str:
    """The installed version; empty if there is none."""
    try:
        return version(library.package)
    except PackageNotFoundError:
        return ""


def _folders(module: str) -> list[Path]:
    forget_found_modules()
    spec = find_spec(module)
    return list(map(Path, (spec.submodule_search_locations or ()) if spec else ()))


# --- errors ---


def _advice(operation: str, known: Sequence[Library]) -> str:
    """The error of an operation whose libraries are not there."""
    here = _this_tensorflow()
    if not known:
        return (
            f"its operation {operation} is neither in {here} nor in a library that Ferry knows; name the library that "
            "has it in the setting operation_libraries"
        )
    fitting = [library for library in known if library.fitting(tf.__version__)]
    first = (fitting or known)[0]
    text = f"its operation {operation} is in {first.package}, {_why_not(first)}"
    if not fitting:
        newest, built = first.newest
        return f"{text}; no version is known that fits {here}: {built} is for TensorFlow {newest}"
    wanted = first.fitting(tf.__version__)
    command = f"'ferry-serving[{first.extra}]'" if first.extra else f"'{first.package}=={wanted}'"
    return f"{text}; version {wanted} fits {here}: pip install {command}"


def _why_not(library: Library) -> str:
    found = _version_of(library)
    return f"of which {found} is installed" if found else "which is not installed"


def _this_tensorflow() -> str:
    return f"TensorFlow {'.'.join(tf.__version__.split('.')[:2])}"


# --- the setting ---


def load_named(names: Collection[str], libraries: LoadedLibraries = LIBRARIES_HERE) -> None:
    """Loads the libraries of the setting `operation_libraries`. Raises LibraryUnusable, which names both."""
    for name in names:
        try:
            libraries.load(named_library(name), "as operation_libraries says")
        except LibraryUnusable as error:
            raise LibraryUnusable(f"operation_libraries: {error}") from None


def named_library(name: str) -> Loadable:
    """The library that is named by a path, a package or a module. Raises LibraryUnusable: there is none."""
    if "/" in name or name.endswith(".so"):
        if not Path(name).is_file():
            raise LibraryUnusable(f"{name}: there is no such file")
        return Loadable(name, (str(Path(name).absolute()),))
    known = known_as(name)
    if known is not None and (found := installed(known, of_any_version=True)):
        return found
    module = next(_modules(name), "")
    if not module:
        raise LibraryUnusable(f"{name} is not installed: it is neither a package nor a module of this Python")
    return Loadable(name, module=module)


def _modules(name: str) -> Iterator[str]:
    """The modules that a package or a module name stands for."""
    plain = name.replace("-", "_")
    for each in (name, plain):
        with suppress(ValueError):  # a module that was made by hand has no specification
            if each.replace(".", "").isidentifier() and find_spec(each.partition(".")[0]):
                yield each
    for module, packages in sorted(packages_distributions().items()):
        if module[0] != "_" and plain.lower() in {package.replace("-", "_").lower() for package in packages}:
            yield module
