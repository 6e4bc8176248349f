"""A library is tried in a child, so whatever it does there costs an error; then it is loaded once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType

import pytest
import tensorflow as tf

from app.core.errors import InvalidRequest
from app.runtime import RuntimeOptions
from app.runtimes.tensorflow.operation_libraries.needed import load_named, named_library
from app.runtimes.tensorflow.operation_libraries.shared_libraries import (
    LibraryUnusable,
    Loadable,
    LoadedLibraries,
    forget_found_modules,
    try_in_child,
)
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that may be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _module(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text)
    return name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", " ends the process that loads it, by SIGSEGV"),
        ("import os\nos.abort()", " ends the process that loads it, by SIGABRT"),
        ("raise RuntimeError('it was built for\\nanother TensorFlow')", "it was built for another TensorFlow"),
        ("raise SystemExit(3)", " cannot be loaded: 3"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("import os\nos._exit(7)", " cannot be loaded: exit code 7"),
    ],
    ids=["segfault", "abort", "error", "exit", "import", "silent"],
)
def test_whatever_a_library_does_at_import_is_an_error_that_names_it(modules: Path, text: str, said: str) -> None:
    name = _module(modules, "bad_operations", text)
    with pytest.raises(LibraryUnusable) as unusable:
        load_named([name], LoadedLibraries(try_in_child))
    assert str(unusable.value).startswith("operation_libraries: bad_operations ")
    assert str(unusable.value).endswith(said)
    assert name not in sys.modules


def test_a_library_that_does_not_come_back_is_ended(modules: Path) -> None:
    name = _module(modules, "endless_operations", "import threading\nthreading.Event().wait()")
    with pytest.raises(LibraryUnusable, match=r"endless_operations does not load within 0\.5 s"):
        try_in_child([Loadable(name, module=name)], limit_s=0.5)


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    file = tmp_path / "beam.so"
    file.write_bytes(b"no library")
    with pytest.raises(LibraryUnusable) as unusable:
        try_in_child([named_library(str(file))])
    assert str(unusable.value).startswith(f"{file} cannot be loaded: ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/nowhere/beam.so", "/nowhere/beam.so: there is no such file"),
        ("no-such-package", "no-such-package is not installed: it is neither a package nor a module of this Python"),
        ("specless", "specless is not installed: it is neither a package nor a module of this Python"),
    ],
)
def test_a_name_of_nothing_is_told_when_the_runtime_starts(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "specless", ModuleType("specless"))  # like __main__ of a script
    with pytest.raises(InvalidRequest) as rejected:
        TensorFlowRuntime(RuntimeOptions(operation_libraries=(name,)))
    assert str(rejected.value) == f"operation_libraries: {said}"


def test_versions_that_load_side_by_side_look_for_libraries_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's invalidate_caches raises KeyError where two threads are in it."""
    inside = Lock()
    together: list[bool] = []

    def look() -> None:
        together.append(not inside.acquire(blocking=False))
        for _ in range(1000):
            pass
        if not together[-1]:
            inside.release()

    monkeypatch.setattr("importlib.invalidate_caches", look)
    threads = [Thread(target=lambda: [forget_found_modules() for _ in range(200)]) for _ in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    assert together == [False] * 1600


def test_a_package_is_found_by_the_name_of_its_distribution() -> None:
    assert named_library("PyYAML").module == "yaml"
    assert named_library("numpy") == Loadable("numpy", module="numpy")


def test_a_library_is_tried_together_with_the_others_and_loaded_once(
    modules: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = _module(modules, "first_operations", ""), _module(modules, "second_operations", "")
    tried: list[Sequence[Loadable]] = []
    libraries = LoadedLibraries(tried.append)
    load_named([first, second, first], libraries)
    a, b = Loadable(first, module=first), Loadable(second, module=second)
    assert tried == [[a], [a, b]]
    assert libraries.operations == frozenset()
    assert [record.getMessage().partition(" was loaded in ")[0] for record in caplog.records] == [first, second]


def test_what_was_imported_already_is_not_tried() -> None:
    LoadedLibraries(lambda libraries: pytest.fail("it was tried")).load(Loadable("numpy", module="numpy"), "for a test")
    assert tf.__version__
