from pathlib import Path

import pytest

from bench.peers import environments
from bench.peers.environments import EnvironmentFailed, python_of


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "CACHE", tmp_path / "cache")


def requirements(folder: Path, text: str) -> Path:
    file = folder / "requirements.txt"
    file.write_text(text)
    return file


def test_what_cannot_be_installed_says_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"cannot be installed: .*absent"):
        python_of("peer", requirements(tmp_path, f"{tmp_path}/absent.whl"))


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"python0\.1"):
        python_of("peer", requirements(tmp_path, ""), ["python0.1"])


def test_an_environment_is_made_once_for_each_state_of_its_requirements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = requirements(tmp_path, "")
    python = python_of("peer", file)
    assert python.is_file()
    assert python_of("peer", file) == python
    assert capsys.readouterr().out.count("Installing") == 1
    file.write_text("# another\n")
    python_of("peer", file)
    assert "Installing" in capsys.readouterr().out
