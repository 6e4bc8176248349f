import subprocess
import tomllib
from pathlib import Path

import pytest

from bench.peers.descriptor import find_peers
from bench.support import machine
from bench.support.cache import ROOT


def test_the_results_that_a_run_writes_do_not_make_it_another_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(machine, "ROOT", tmp_path)
    results, code = tmp_path / "bench/results/peers.md", tmp_path / "code.py"
    results.parent.mkdir(parents=True)
    for file in (results, code):
        file.write_text("before")
    git("init")
    git("add", ".")
    git("commit", "--message", "first")
    revision = machine.commit()
    assert revision
    results.write_text("after")
    assert machine.commit() == revision
    code.write_text("after")
    assert machine.commit() == f"{revision}-dirty"


def test_a_machine_without_git_tells_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert machine.commit() == machine.version_of("ferry-serving")


def test_ferrys_version_is_that_of_its_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    peers = [peer for name, peer in find_peers().items() if name.startswith("ferry")]
    assert [peer.distribution for peer in peers] == [project] * 4
