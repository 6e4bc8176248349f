"""The lock files: hashed, without host names, and of one mind with each other and pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT

LOCKS = [
    "serve",
    "tracing",
    "import",
    "jwt",
    "forests",
    "text",
    "tflite",
    "tensorflow-2.19",
    "audit",
    "dev",
    "client",
    "gpu",
    "clients",
    "perf-analyzer",
    "manifests",
    "deploy",
    "ray",
    "sbom",
]
FOLDER = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The CPU wheel of the package that pyproject.toml names.
SAME = {"tensorflow-cpu": "tensorflow"}
BUILD = {"hatchling", "editables"}


def _names(lines: list[str]) -> set[str]:
    names = {re.split(r"[\[<>=; ]", line.strip())[0] for line in lines if line.strip() and line[0] not in "#-"}
    return {SAME.get(name, name) for name in names}


def _locked(path: Path) -> set[str]:
    """The lines that pin: a name, its version, and where it is for."""
    return {line.rstrip(" \\") for line in path.read_text().splitlines() if re.match(r"\S+==", line)}


@pytest.mark.parametrize("name", LOCKS)
def test_lock_is_hashed_and_names_no_host(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"://|--index-url|--find-links| @ ", text)


def test_development_extends_what_serves() -> None:
    assert _locked(FOLDER / "serve.txt") <= _locked(FOLDER / "dev.txt")


@pytest.mark.parametrize("name", ["serve", "gpu"])
def test_requirements_are_those_of_the_project(name: str) -> None:
    asked = _names((FOLDER / f"{name}.in").read_text().splitlines())
    assert asked - BUILD == _names(PROJECT["dependencies"])


@pytest.mark.parametrize("extra", ["tracing", "jwt", "forests", "import"])
def test_the_requirements_of_an_extra_are_its_own_and_go_with_what_serves(extra: str) -> None:
    asked = _names((FOLDER / f"{extra}.in").read_text().splitlines())
    assert asked == _names(PROJECT["optional-dependencies"][extra])
    versions = [
        dict(line.split(" ;")[0].split("==") for line in _locked(FOLDER / f"{each}.txt")) for each in ("serve", "gpu")
    ]
    locked = dict(line.split(" ;")[0].split("==") for line in _locked(FOLDER / f"{extra}.txt"))
    for serving in versions:
        assert {name: serving[name] for name in locked if name in serving}.items() <= locked.items()


@pytest.mark.parametrize("name", ["forests", "tensorflow-2.19", "dev"])
def test_libraries_of_operations_are_those_for_the_tensorflow_beside_them(name: str) -> None:
    locked = dict(line.split(" ;")[0].split("==") for line in _locked(FOLDER / f"{name}.txt"))
    tensorflow = ".".join(locked["tensorflow-cpu"].split(".")[:2])
    libraries = [each for each in ("ydf-tf", "tensorflow-text") if each in locked]
    assert libraries
    assert all(locked[each].startswith(f"{tensorflow}.") for each in libraries)


def test_the_clients_requirements_are_those_of_its_project() -> None:
    client = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text())["project"]
    assert _names((FOLDER / "client.in").read_text().splitlines()) == _names(client["dependencies"])
    pinned, tested = ({line.split(" ;")[0] for line in _locked(FOLDER / name)} for name in ("client.txt", "dev.txt"))
    assert pinned <= tested


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_says_why_it_is_there(name: str) -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    lines = (FOLDER / f"{name}.in").read_text().splitlines()
    unexplained = [asked for asked in _names(lines) if f"| `{asked}` |" not in text]
    assert unexplained == []
