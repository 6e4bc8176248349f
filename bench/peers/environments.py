"""A virtual environment for each peer, made once for each state of its requirements."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.support.cache import CACHE


class EnvironmentFailed(Exception):
    """The peer cannot be installed here; the text says why, in one line."""


def python_of(name: str, requirements: Path, interpreters: Sequence[str] = ()) -> Path:
    """The interpreter of environment `name`, which has what `requirements` pins.

    `interpreters` are tried in turn as its base; none means the one that runs now.

    Raises EnvironmentFailed.
    """
    folder = CACHE / "environments" / name
    base = _first_found(interpreters)
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = hashlib.sha256(requirements.read_bytes() + base.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"Installing {name} into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    # pip of the running interpreter installs into the other: Debian's python3 may have no ensurepip.
    _run(base, "-m", "venv", "--without-pip", folder)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, "--requirement", requirements)
    stamp.write_text(wanted)
    return python


def _first_found(interpreters: Sequence[str]) -> str:
    if not interpreters:
        return sys.executable
    found = [path for name in interpreters if (path := shutil.which(name))]
    if not found:
        raise EnvironmentFailed(f"needs one of these interpreters: {', '.join(interpreters)}")
    return found[0]


def _run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise EnvironmentFailed(f"cannot be installed: {lines[-1]}")
