"""A library that is not there, or is another version's, is a warning and no error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.core.compiled.library import NUMBER, load
from hatch_build import compile_library
from tests.support.missing import skip_loudly


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        skip_loudly("NO C COMPILER: NO LIBRARY IS LOADED")
    source = tmp_path_factory.mktemp("source") / "sums.c"
    source.write_text("#include <stdint.h>\nint64_t sum_1(int64_t one, int64_t other) { return one + other; }\n")
    compile_library(source, source.with_suffix(".so"))
    return source.with_suffix(".so")


@pytest.mark.parametrize("holds_gil", [False, True])
def test_what_was_compiled_is_called(library: Path, holds_gil: bool) -> None:
    loaded = load(library, {"sum_1": (NUMBER, NUMBER)}, "", holds_gil=holds_gil)
    assert loaded is not None
    assert loaded.sum_1(1 << 40, 2) == (1 << 40) + 2


@pytest.mark.parametrize("name", ["missing", "another version", "no library"])
def test_what_was_not_compiled_is_told(library: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    functions = {"sum_2" if name == "another version" else "sum_1": (NUMBER, NUMBER)}
    path = library if name == "another version" else library.with_name(f"{name.replace(' ', '')}.so")
    if name == "no library":
        path.write_bytes(b"\x7fELF")
    assert load(path, functions, "sums take longer") is None
    (line,) = caplog.messages
    assert line == f"{path.stem}.c was not compiled when Ferry was installed: sums take longer"
