"""The Makefile's own decisions: which environment, what is left to do, and what it says when Python does not suit."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT

C_SOURCES = [str(path.relative_to(ROOT)) for path in (ROOT / "app").rglob("*.c")]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "hatch_build.py", *C_SOURCES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "requirements").mkdir()
    for name in ("serve", "dev", "gpu"):
        (tmp_path / "requirements" / f"{name}.txt").touch()
    return tmp_path


def test_each_source_in_c_is_compiled_and_compiled_anew_when_it_changes() -> None:
    assert C_SOURCES
    for file in ("Makefile", "hatch_build.py"):
        text = (ROOT / file).read_text()
        assert all(source in text for source in C_SOURCES), file


def _make(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=clone, env=environment, capture_output=True, text=True, check=False)


def _installed(clone: Path, environment: str, flavour: str) -> None:
    """What the Makefile leaves behind after an installation."""
    (clone / environment).mkdir(exist_ok=True)
    (clone / environment / ".gitignore").write_text("*\n")
    (clone / environment / f".{flavour}-installed").touch()


def test_fresh_clone_serves_from_the_serving_lock(clone: Path) -> None:
    plan = _make(clone, "-n", "serve").stdout
    assert "-m venv .venv" in plan
    # The lock is complete. Without --no-deps pip looks for a newer release of what somebody needs with an extra
    # (pytest-cov: coverage[toml]), has no hash for it, and installs nothing.
    assert "--no-deps --require-hashes -r requirements/serve.txt" in plan
    assert plan.rstrip().endswith("exec .venv/bin/ferry serve")


@pytest.mark.parametrize("flavour", ["serve", "dev"])
def test_second_serve_installs_nothing(clone: Path, flavour: str) -> None:
    _installed(clone, ".venv", flavour)
    assert _make(clone, "-n", "serve").stdout.split() == ["exec", ".venv/bin/ferry", "serve"]


def test_tests_extend_the_environment_that_serves(clone: Path) -> None:
    _installed(clone, ".venv", "serve")
    plan = _make(clone, "-n", "test").stdout
    assert "-m venv" not in plan
    assert "-r requirements/dev.txt" in plan


def test_changed_lock_is_installed_again(clone: Path) -> None:
    _installed(clone, ".venv", "dev")
    os.utime(clone / "requirements" / "dev.txt", (2**32, 2**32))
    assert "-r requirements/dev.txt" in _make(clone, "-n", "serve").stdout


def test_gpu_has_an_environment_of_its_own(clone: Path) -> None:
    _installed(clone, ".venv", "dev")
    plan = _make(clone, "-n", "serve", "GPU=1").stdout
    assert "-r requirements/gpu.txt" in plan
    assert plan.rstrip().endswith("exec .venv-gpu/bin/ferry serve")


def test_old_python_is_rejected_with_the_way_out(clone: Path) -> None:
    old = clone / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    made = _make(clone, "setup", f"PYTHON={old}")
    assert made.returncode != 0
    assert "needs Python 3.11, 3.12 or 3.13" in made.stderr
    assert "is Python 3.9.2" in made.stderr
    assert "make setup PYTHON=python3.11" in made.stderr
    assert not (clone / ".venv").exists()
