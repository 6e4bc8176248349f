from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.support import other_tree as module
from bench.support.other_tree import other_tree


def test_the_other_tree_is_a_checkout_for_as_long_as_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet")
    (tmp_path / "file").write_text("old")
    (tmp_path / "app").mkdir()
    (tmp_path / "app/fast.c").write_text("source")
    (tmp_path / "hatch_build.py").write_text("def compile_library(source, library): library.write_text('compiled')")
    git("add", ".")
    git("commit", "--quiet", "--message=old")
    (tmp_path / "file").write_text("new")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    with other_tree("HEAD") as tree:
        assert (tree / "file").read_text() == "old"
        assert (tree / "app/fast.so").read_text() == "compiled"
    assert not tree.exists()
    assert len(git("worktree", "list").splitlines()) == 1
