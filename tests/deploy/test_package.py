"""The wheel that `pip install .` makes: the package, its licence, its command."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder: Path = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("ferry_serving-*.whl")
    return zipfile.ZipFile(path)


def test_holds_the_package_and_nothing_beside_it(wheel: zipfile.ZipFile) -> None:
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "app").rglob("*.py")}
    packaged = set(wheel.namelist())
    assert sources <= packaged
    assert {name.split("/")[0].split("-")[0] for name in packaged} == {"app", "ferry_serving"}


def test_names_the_command_and_carries_the_licence(wheel: zipfile.ZipFile) -> None:
    by_name = {name.rpartition("/")[2]: name for name in wheel.namelist()}
    assert "ferry = app.__main__:main" in wheel.read(by_name["entry_points.txt"]).decode()
    assert "Apache License" in wheel.read(by_name["LICENSE"]).decode()
