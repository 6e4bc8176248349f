"""What children of imports do in the tests of their parent and their limits, in place of an import."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from app.importing.order import CannotImport, ImportOrder
from app.importing.result import ImportResult

Report = Callable[[str], None]

RESULT = ImportResult("a test", {"x": "float32[?,2]"}, {"y": "float32[?]"}, ["serving_default"], 3, 0.0, notes=[])


def writes(order: ImportOrder, kind: str, staging: Path, report: Report) -> ImportResult:
    """A whole version."""
    report("it writes")
    (staging / "version" / "variables").mkdir(parents=True)
    (staging / "version" / "saved_model.pb").write_bytes(b"graph")
    (staging / "temporary" / "left.txt").write_text("temporary")
    return RESULT


def refuses(order: ImportOrder, kind: str, staging: Path, report: Report) -> NoReturn:
    _begin(staging)
    raise CannotImport(f"{order.source} of format {kind} has two\nlines")


def raises(order: ImportOrder, kind: str, staging: Path, report: Report) -> NoReturn:
    _begin(staging)
    raise KeyError("x" * 10_000)


def crashes(order: ImportOrder, kind: str, staging: Path, report: Report) -> NoReturn:
    _begin(staging)
    report("it reads the layers")
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def exits(order: ImportOrder, kind: str, staging: Path, report: Report) -> NoReturn:
    _begin(staging)
    os.write(2, b"F0000 00:00:1 1 file.cc:3] Check failed: x == y\nand more\n")
    os._exit(7)


def takes_long(order: ImportOrder, kind: str, staging: Path, report: Report) -> NoReturn:
    """Forever, with a process of its own."""
    _begin(staging)
    subprocess.Popen(["sleep", "1000"])
    report("it takes long")
    while True:
        time.sleep(60)


def allocates(order: ImportOrder, kind: str, staging: Path, report: Report) -> NoReturn:
    """More and more memory, by small steps, as Python and C do."""
    _begin(staging)
    report("it fills memory")
    kept = []
    while True:
        kept.append(bytearray(1 << 22))


def writes_much(order: ImportOrder, kind: str, staging: Path, report: Report) -> NoReturn:
    """A file without end."""
    report("it fills the disk")
    with (staging / "large").open("wb") as file:
        while True:
            file.write(bytes(1 << 22))
            file.truncate(1 << 22) if file.tell() > order.memory_bytes else None


def connects(order: ImportOrder, kind: str, staging: Path, report: Report) -> NoReturn:
    """Tries the ways out, and tells those that are open."""
    ways: dict[str, Callable[[], object]] = {
        "TCP": socket.socket,
        "IPv6": lambda: socket.socket(socket.AF_INET6),
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        "a Unix socket of others": lambda: socket.socket(socket.AF_UNIX).connect(order.samples),
        "a child's TCP": lambda: subprocess.run(
            ["python3", "-c", "import socket; socket.socket()"], check=True, stderr=subprocess.DEVNULL
        ),
        "a file elsewhere": lambda: Path(order.labels).write_text("changed"),
    }
    open_ways = [name for name, go in ways.items() if _succeeds(go)]
    raise CannotImport(f"open ways: {', '.join(open_ways) or 'none'}")


def _succeeds(go: Callable[[], object]) -> bool:
    try:
        go()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _begin(staging: Path) -> None:
    (staging / "version").mkdir()
    (staging / "version" / "saved_model.pb").write_bytes(b"half")
