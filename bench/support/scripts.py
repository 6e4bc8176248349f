"""Measurements that need no peers: each is a module of its own that prints a report and writes its figures.

`python -m bench.NAME --json FILE` writes {key: [figure of each round]}; the goals name the keys.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.support.cache import ROOT


@dataclass(frozen=True, slots=True)
class Script:
    """`quick` are its options where only whether it works is asked, `always` those besides."""

    name: str
    about: str
    expected_s: float
    quick: tuple[str, ...] = ()
    always: tuple[str, ...] = ()


_ALL = (
    Script("memory", "RSS over a million requests", 120, ("--requests", "20000")),
    Script(
        "several_models",
        "requests for one, three and many models in turn",
        120,
        ("--rounds", "1", "--seconds", "1", "--many", "5"),
    ),
    Script(
        "heavy_models", "as many bare loops as Ferry has calls, load from a core of its own", 240, ("--rounds", "1")
    ),
    Script("overload", "far more than a heavy model can answer", 90, ("--rounds", "1", "--seconds", "1")),
    Script("simulate", "a real server beside the simulator", 60, ("--quick",), ("--real",)),
    Script("protection", "keys, TLS, metrics and traces beside none", 180, ("--rounds", "1", "--seconds", "1")),
    Script("frontends", "two frontends and an engine beside one process", 90, ("--rounds", "1", "--seconds", "1")),
    Script(
        "hostile",
        "slow connections, ten times the load and malformed requests at once",
        180,
        ("--rounds", "1", "--seconds", "2", "--slow", "200"),
        ("--seconds", "10"),
    ),
    Script(
        "floods",
        "floods of one stranger at one process",
        150,
        ("--floods", "reset,ping", "--seconds", "1"),
        ("--modes", "one", "--rounds", "1"),
    ),
)
SCRIPTS = {script.name: script for script in _ALL}


def run_script(script: Script, quick: bool) -> dict[str, Any]:
    """`report`, `figures`, and `not_run`: why there are none. Its report shows on standard error, too."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"bench.{script.name}", *script.always, *(script.quick if quick else ())]
        command += ["--json", str(file)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=60 + 5 * script.expected_s
            )
        except subprocess.TimeoutExpired as late:
            return {"report": "", "figures": {}, "not_run": f"not done within {late.timeout:.0f} s"}
        print(done.stdout, file=sys.stderr)
        if not file.is_file():  # an exit code beside figures says that a bound was broken, and so does the page
            return {"report": done.stdout, "figures": {}, "not_run": f"ended with {done.returncode}"}
        return {"report": done.stdout, "figures": json.loads(file.read_text()), "not_run": ""}
