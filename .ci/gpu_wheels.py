"""Carries the wheels of requirements/gpu.txt to a machine without a network, through a way that takes little at a time.

Here, in Ferry's environment (the wheels are several GB):

    python .ci/gpu_wheels.py download FOLDER [--only NAME ...] [--without NAME ...] [--dry-run]
    python .ci/gpu_wheels.py cut FOLDER PIECES [--piece-mib 52]

There, with a bare Python (this file needs nothing else), once for each piece, in any order; then once:

    python3 .ci/gpu_wheels.py keep STORE PIECES/manifest.json PIECES/0000.piece
    python3 .ci/gpu_wheels.py install STORE VENV

The pieces are cut from all wheels one after the other, so small wheels share one. `keep` moves a piece into the store
if its checksum is right, and says which are missing, so a transfer that broke off goes on where it stopped. `install`
joins the wheels, compares their checksums, and installs them into an environment without asking any index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements" / "gpu.txt"

#: The machine that the wheels are for: CPython on Linux of this processor, glibc of at most this minor version.
PYTHON, PROCESSOR, NEWEST_GLIBC = "3.12", "x86_64", 39

MANIFEST = "manifest.json"

#: Bytes that are read at a time.
_BLOCK = 1 << 20


class BadPiece(ValueError):
    """What arrived is not what was cut; the text names the file, and what is expected."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A file: a wheel or a piece of all of them."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All wheels, in the order in which they were cut, and the pieces."""

    wheels: Sequence[Stored]
    pieces: Sequence[Stored]

    @classmethod
    def read(cls, file: Path) -> Manifest:
        """Raises BadPiece: it is no manifest."""
        try:
            parts = json.loads(file.read_text())
            return cls(*([Stored(**each) for each in parts[kind]] for kind in ("wheels", "pieces")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadPiece(f"{file} is no manifest: {error}") from error

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=1))


# --- here: what the other machine needs ---


def wanted(lock: str, environment: Mapping[str, str], *, only: Sequence[str] = (), without: Sequence[str] = ()) -> str:
    """The lines of a lock file that hold for another machine: pip asks the markers of this one.

    Raises ValueError: a name in `only` or `without` is not locked.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415 - a bare machine has none, and needs none

    blocks, names = [], set()
    for block in re.findall(r"^\S.*(?:\n[ \t].*)*", lock, re.MULTILINE):
        if block.startswith("#"):
            continue
        requirement = Requirement(block.split("\\")[0].split("--hash")[0].strip())
        names.add(requirement.name)
        chosen = requirement.name in only if only else requirement.name not in without
        if chosen and (requirement.marker is None or requirement.marker.evaluate(dict(environment))):
            pinned = f"{requirement.name}{requirement.specifier}"
            blocks.append(" \\\n".join([pinned, *(f"    {each}" for each in re.findall(r"--hash=\S+", block))]))
    if unknown := {*only, *without} - names:
        raise ValueError(f"{LOCK.name} locks no {', '.join(sorted(unknown))}")
    return "\n".join(blocks) + "\n"


def environment_there() -> dict[str, str]:
    """The markers of the machine that the wheels are for."""
    return {
        "python_version": PYTHON,
        "python_full_version": f"{PYTHON}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_system": "Linux",
        "platform_machine": PROCESSOR,
    }


def download_command(requirements: Path, folder: Path) -> list[str]:
    tags = [f"manylinux_2_{minor}_{PROCESSOR}" for minor in range(NEWEST_GLIBC, 4, -1)]
    tags += [f"{name}_{PROCESSOR}" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON]
    command += [part for tag in tags for part in ("--platform", tag)]
    return [*command, "-r", str(requirements), "-d", str(folder)]


def download(folder: Path, *, only: Sequence[str] = (), without: Sequence[str] = (), dry_run: bool = False) -> None:
    """Into the folder; wheels that are there with the right checksum stay. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = wanted(LOCK.read_text(), environment_there(), only=only, without=without)
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "requirements.txt"
        file.write_text(lines)
        command = download_command(file, folder)
        if dry_run:
            pinned = [line.split()[0] for line in lines.splitlines() if not line.startswith(" ")]
            print(f"{' '.join(command)}\n{len(pinned)} packages: {', '.join(pinned)}\nDRY RUN: nothing was downloaded")
            return
        subprocess.run(command, check=True)


def cut(folder: Path, out: Path, piece_bytes: int) -> Manifest:
    """Writes the wheels of a folder as pieces of at most this many bytes, and their manifest.

    Raises ValueError: the folder has no wheels, or `out` has pieces already.
    """
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise ValueError(f"{folder} has no wheels")
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty; expected a folder for these pieces alone")
    out.mkdir(parents=True, exist_ok=True)
    pieces = []
    for number, content in enumerate(_grouped(wheels, piece_bytes)):
        piece = out / f"{number:04}.piece"
        with piece.open("wb") as file:
            file.writelines(content)
        pieces.append(_stored(piece))
    manifest = Manifest([_stored(wheel) for wheel in wheels], pieces)
    manifest.write(out / MANIFEST)
    return manifest


def _grouped(files: Sequence[Path], piece_bytes: int) -> Iterator[Iterator[bytes]]:
    """The content of all files, piece by piece; each piece is to be read before the next one."""
    left = sum(file.stat().st_size for file in files)
    blocks = _blocks(files)
    rest = b""

    def piece() -> Iterator[bytes]:
        nonlocal rest
        room = piece_bytes
        while room and (block := rest or next(blocks, b"")):
            taken, rest = block[:room], block[room:]
            room -= len(taken)
            yield taken

    while left > 0:
        yield piece()
        left -= piece_bytes


def _blocks(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block


def _stored(path: Path) -> Stored:
    with path.open("rb") as file:
        return Stored(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


# --- there: pieces that arrive, in any order ---


def keep(store: Path, manifest_file: Path, pieces: Sequence[Path]) -> list[str]:
    """Moves pieces into the store. Returns the names of those that are still missing.

    Raises:
        BadPiece: a piece is not in the manifest or not what was cut, or the store has pieces of another cut.
    """
    manifest = Manifest.read(manifest_file)
    store.mkdir(parents=True, exist_ok=True)
    own = store / MANIFEST
    if own.exists() and Manifest.read(own) != manifest:
        raise BadPiece(f"{store} has pieces of another cut; expected those of {manifest_file}: remove it to begin anew")
    manifest.write(own)
    expected = {piece.name: piece for piece in manifest.pieces}
    for piece in pieces:
        _check(piece, expected.get(piece.name))
        arriving = store / f"{piece.name}.arriving"
        shutil.move(piece, arriving)
        arriving.rename(store / piece.name)  # at once: a piece in the store is whole
    return missing(store, manifest)


def missing(store: Path, manifest: Manifest) -> list[str]:
    """The names of the pieces that have not arrived; none once the wheels are joined."""
    if all((store / wheel.name).exists() for wheel in manifest.wheels):
        return []
    return [piece.name for piece in manifest.pieces if not (store / piece.name).exists()]


def join(store: Path) -> list[Path]:
    """Makes the wheels of the pieces in the store, which are removed; wheels that are there already stay.

    Raises BadPiece: a piece is missing, or a wheel is not what was cut; then all pieces stay.
    """
    manifest = Manifest.read(store / MANIFEST)
    wheels = [store / wheel.name for wheel in manifest.wheels]
    if all(wheel.exists() for wheel in wheels):
        return wheels
    if lacking := missing(store, manifest):
        raise BadPiece(f"{len(lacking)} of {len(manifest.pieces)} pieces are missing: {', '.join(lacking)}")
    pieces = [store / piece.name for piece in manifest.pieces]
    blocks, rest = _blocks(pieces), b""
    for wheel in manifest.wheels:
        arriving, left = store / f"{wheel.name}.arriving", wheel.bytes
        with arriving.open("wb") as file:
            while left and (block := rest or next(blocks, b"")):
                file.write(block[:left])
                left, rest = max(0, left - len(block)), block[left:]
        _check(arriving, wheel)
    for path in wheels:
        path.with_name(f"{path.name}.arriving").rename(path)
    for piece in pieces:
        piece.unlink()
    return wheels


def install(store: Path, venv: Path) -> Path:
    """Joins the wheels and installs them into a new environment. Returns its Python.

    Raises BadPiece as `join`; CalledProcessError: pip failed.
    """
    wheels = join(store)
    python = venv / "bin" / "python"
    pip = [str(python), "-m", "pip"]
    made = subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False)
    if made.returncode:  # Debian keeps ensurepip in a package of its own: the machine's pip fills in
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
    options = ["--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile", "--find-links", str(store)]
    subprocess.run([*pip, "install", "-q", *options, *map(str, wheels)], check=True)
    return python


def _check(file: Path, expected: Stored | None) -> None:
    if expected is None:
        raise BadPiece(f"{file.name} is not in the manifest")
    found = _stored(file)
    if (found.bytes, found.sha256) != (expected.bytes, expected.sha256):
        raise BadPiece(
            f"{file.name} has {found.bytes:,} bytes and checksum {found.sha256[:12]}; "
            f"expected {expected.bytes:,} and {expected.sha256[:12]}"
        )


# --- the command ---


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    step = _step(steps, "download", "folder", run=_download)
    step.add_argument("--only", nargs="*", default=[], help="packages: these alone")
    step.add_argument("--without", nargs="*", default=[], help="packages to leave out")
    step.add_argument("--dry-run", action="store_true", help="print what would be downloaded")
    step = _step(steps, "cut", "folder", "out", run=_cut)
    step.add_argument("--piece-mib", type=float, default=52, help="the most that a piece may have")
    _step(steps, "keep", "store", "manifest", run=_keep).add_argument("pieces", type=Path, nargs="*")
    _step(steps, "install", "store", "venv", run=lambda given: print(f"Installed: {install(given.store, given.venv)}"))
    given = parser.parse_args()
    try:
        given.run(given)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))


def _step(steps: Any, name: str, *paths: str, run: Any) -> argparse.ArgumentParser:
    step: argparse.ArgumentParser = steps.add_parser(name)
    for path in paths:
        step.add_argument(path, type=Path)
    step.set_defaults(run=run)
    return step


def _download(given: argparse.Namespace) -> None:
    download(given.folder, only=given.only, without=given.without, dry_run=given.dry_run)


def _cut(given: argparse.Namespace) -> None:
    manifest = cut(given.folder, given.out, int(given.piece_mib * 2**20))
    mib = sum(wheel.bytes for wheel in manifest.wheels) / 2**20
    print(f"{len(manifest.wheels)} wheels, {mib:,.0f} MiB, in {len(manifest.pieces)} pieces in {given.out}")


def _keep(given: argparse.Namespace) -> None:
    lacking = keep(given.store, given.manifest, given.pieces)
    print(f"{len(lacking)} pieces are missing: {' '.join(lacking)}" if lacking else "All pieces are here")


if __name__ == "__main__":
    main()
