"""Both distributions, built and installed in empty environments, run without a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.deploy.manifests import ROOT
from tests.support.missing import skip_loudly
from tests.support.processes import free_port
from tests.support.waiting import HANG_S, wait_until

CLIENT = ROOT / "clients" / "python"

#: What requirements/client.txt locks, as files of this environment.
CLIENT_NEEDS = ("anyio", "certifi", "h11", "httpcore", "httpx", "idna", "numpy", "numpy.libs", "typing_extensions.py")

PREDICT = """
import sys
import numpy as np
import ferry_client
assert "site-packages" in ferry_client.__file__, ferry_client.__file__
with ferry_client.Client(sys.argv[1]) as client:
    print(client.predict("digits", {"image": np.zeros((2, 8, 8), np.float32)})["probabilities"].shape)
for absent in ("app", "tensorflow", "tenacity"):
    try:
        __import__(absent)
    except ImportError:
        continue
    raise SystemExit(f"{absent} is installed beside the client")
"""


def build(project: Path, target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return path


def install(wheel: Path, environment: Path) -> None:
    """Without dependencies: each environment has its own."""
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    options = ["install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, *options, str(wheel)], check=True, env=outside_the_checkout())


def site_packages(environment: Path) -> Path:
    (folder,) = environment.glob("lib/python*/site-packages")
    return folder


def outside_the_checkout() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def client_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numpy, httpx and what these need; from their lock where .ci/wheels runs this."""
    folder = tmp_path_factory.mktemp("client")
    given = os.environ.get("CLIENT_ENVIRONMENT")
    environment = Path(given) if given else folder / "environment"
    if not given:
        venv.create(environment, symlinks=True)
        for name in CLIENT_NEEDS:
            installed = Path(sysconfig.get_path("purelib")) / name
            if installed.exists():
                (site_packages(environment) / name).symlink_to(installed)
    install(build(CLIENT, "wheel", folder / "wheel"), environment)
    return environment


@pytest.fixture(scope="module")
def server_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's wheel; its dependencies are those of this environment, without its editable installations."""
    folder = tmp_path_factory.mktemp("server")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    # Path files in that folder are not read, so its editable installations stay out.
    (site_packages(environment) / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install(build(ROOT, "wheel", folder / "wheel"), environment)
    return environment


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A working directory with an `app` of the user's own."""
    folder = tmp_path / "work"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "__init__.py").write_text("raise SystemExit('this app is not Ferry')\n")
    (folder / "models").mkdir()
    (folder / "models" / "digits").symlink_to(ROOT / "models" / "digits")
    return folder


@contextmanager
def serving(ferry: Path, folder: Path, frontends: int) -> Iterator[str]:
    """The URL of `ferry serve` in this working directory, ready."""
    port = free_port()
    variables = {"REST_PORT": port, "GRPC_PORT": 0, "FRONTENDS": frontends, "DRAIN_GRACE_S": 0}
    settings = {f"FERRY_{name}": str(value) for name, value in variables.items()}
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(ferry), "serve", "--execution-variant", "plain"],
            cwd=folder, env={**outside_the_checkout(), **settings}, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def is_ready() -> bool:
        assert server.poll() is None, (folder / "log").read_text()
        try:
            return httpx.get(f"{url}/readyz", timeout=HANG_S).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(is_ready)
        yield url
    finally:
        server.terminate()
        assert server.wait(HANG_S) == 0, (folder / "log").read_text()


def test_the_command_prints_its_help(server_environment: Path, hostile_folder: Path) -> None:
    command = [str(server_environment / "bin" / "ferry"), "--help"]
    done = subprocess.run(command, cwd=hostile_folder, env=outside_the_checkout(), check=True, capture_output=True)
    assert b"serve" in done.stdout


@pytest.mark.parametrize("frontends", [0, 1])
def test_the_client_predicts_with_a_server_whose_working_directory_has_an_app_of_its_own(
    server_environment: Path, client_environment: Path, hostile_folder: Path, frontends: int
) -> None:
    with serving(server_environment / "bin" / "ferry", hostile_folder, frontends) as url:
        client = [str(client_environment / "bin" / "python"), "-c", PREDICT, url]
        done = subprocess.run(
            client, cwd=hostile_folder.parent, env=outside_the_checkout(), check=False, capture_output=True, text=True
        )
    assert (done.stdout, done.stderr) == ("(2, 10)\n", "")


@pytest.mark.parametrize(("project", "package"), [(ROOT, "app"), (CLIENT, "ferry_client")])
def test_a_source_distribution_holds_the_package_its_licence_and_its_readme(
    project: Path, package: str, tmp_path: Path
) -> None:
    with tarfile.open(build(project, "sdist", tmp_path / "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {str(path.relative_to(project)) for path in (project / package).rglob("*.py")}
    assert sources | {"LICENSE", "README.md", "PKG-INFO", "pyproject.toml"} <= names
    assert {name.partition("/")[0] for name in names} <= {
        package, "LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", "pyproject.toml", ".gitignore", "hatch_build.py",
    }  # fmt: skip
    assert not any(name.endswith(".so") for name in names)


def test_the_servers_wheel_has_the_compiled_sources_and_belongs_to_this_kind_of_machine(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        skip_loudly("NO C COMPILER: WHETHER THE WHEEL HAS WHAT IT COMPILES IS NOT TRIED")
    wheel = build(ROOT, "wheel", tmp_path)
    assert wheel.name.endswith(f"-py3-none-{sysconfig.get_platform().replace('-', '_')}.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {"app/codecs/json/numbers.so", "app/pipelines/fold/fold.so"} <= set(archive.namelist())


def test_without_a_compiler_the_wheel_suits_every_machine_and_its_build_says_so(tmp_path: Path) -> None:
    source = build(ROOT, "sdist", tmp_path / "sdist")
    shutil.unpack_archive(source, tmp_path)
    (project,) = tmp_path.glob("ferry*/")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheel")]
    done = subprocess.run(
        command, cwd=project, env={**os.environ, "CC": "/missing/cc"}, check=True, capture_output=True, text=True
    )
    assert "numbers.c was not compiled" in done.stderr
    assert "fold.c was not compiled" in done.stderr
    (wheel,) = (tmp_path / "wheel").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
