"""What the figures were measured on, in one line."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.support.cache import ROOT


def machine_line() -> str:
    parts = [
        f"{len(os.sched_getaffinity(0))} cores",
        _processor(),
        f"{_memory_gib():.0f} GiB",
        f"{platform.system()} {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}",
        *(f"{name} {version_of(name)}" for name in ("tensorflow-cpu", "uvicorn", "numpy")),
    ]
    return ", ".join(parts)


def require(*tools: str) -> None:
    """Exits with a line that names the missing ones of these load generators, wrk and h2load."""
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        sys.exit(f"This needs {' and '.join(missing)} (Debian: apt-get install wrk nghttp2-client)")


def load_average() -> float:
    """Of the last minute: others at work on the machine make figures worthless."""
    return os.getloadavg()[0]


def version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def commit() -> str:
    """That of Ferry which is measured. The results that a run writes do not make it another one."""
    described = _git("describe", "--always")
    changed = _git("status", "--porcelain", "--", ".", ":!bench/results")
    return f"{described}-dirty" if changed else described or version_of("ferry-serving")


def _git(*arguments: str) -> str:
    """What it prints; nothing where there is no git, or this tree is a copy without its history."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
