from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import revisions
from bench.revisions import other_tree, slower
from bench.support.workloads import WORKLOADS


def test_a_median_below_the_bound_is_slower() -> None:
    assert not slower({"mlp": [0.9, 0.97, 2.0], "digits": [1.0]})
    assert slower({"mlp": [0.9, 0.96, 2.0], "digits": [1.0]})


def test_each_workload_has_a_way() -> None:
    assert {workload.wire for workload in WORKLOADS.values()} <= revisions._WAYS.keys()


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
    git("add", "file")
    git("commit", "--quiet", "--message=old")
    (tmp_path / "file").write_text("new")
    monkeypatch.setattr(revisions, "ROOT", tmp_path)
    with other_tree("HEAD") as tree:
        assert (tree / "file").read_text() == "old"
    assert not tree.exists()
    assert len(git("worktree", "list").splitlines()) == 1
