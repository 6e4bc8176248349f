"""XLA's compiled code on disk, so that another start, or another pod with the same folder, does not compile again.

TensorFlow writes and reads the files by itself, if its flags name a folder. It writes a file under another name first,
so several processes may share the folder; the name of a file is the content of its program, which is compared before
use. The code is for one kind of CPU and one TensorFlow, which have a separate folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

_VARIABLE, _FLAG = "TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory"

#: Only code for CPUs is kept: code for GPUs depends on the GPU, which is not known yet.
_CPU_ONLY = "--tf_xla_persistent_cache_device_types=CPU"

#: Beginnings of the lines of /proc/cpuinfo with the features of a CPU.
_CPU_FACTS = ("flags", "Features", "model name")

#: The most bytes of all files after a start; the oldest are removed. A program takes about 0.1 MB. Chosen.
MOST_BYTES = 256 << 20


def keep_compiled_code(cache: Path, tensorflow: str) -> Path | None:
    """Let TensorFlow keep its compiled code below the folder `cache`. Call it before XLA is first used.

    Returns the folder; None if it cannot be written to, or if the environment names another one.
    """
    flags = os.environ.get(_VARIABLE, "")
    if _FLAG in flags:
        return None
    folder = cache / "xla" / kind_of_machine(tensorflow)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # no other user may put code there
    except OSError as error:
        logger.debug("XLA's compiled code is not kept: %s", error)
        return None
    if not os.access(folder, os.W_OK) or " " in str(folder):  # flags are separated by spaces
        return None
    prune(folder)
    os.environ[_VARIABLE] = f"{flags} {_CPU_ONLY} {_FLAG}={folder}".strip()
    return folder


def prune(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Removes the oldest files beyond `most_bytes`, and empty files, which a crash of the machine may leave.

    A damaged file only fails its program: the batch size runs another variant.
    """
    found = []
    for file in folder.iterdir():
        with suppress(OSError):  # another process removed it
            status = file.stat()
            found.append((status.st_mtime, status.st_size, file))
    total = 0
    for _, size, file in sorted(found, reverse=True):
        total += size
        if total > most_bytes or not size:
            file.unlink(missing_ok=True)


def kind_of_machine(tensorflow: str = "", cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """A name for everything that compiled code depends on: the features of the CPU, and TensorFlow's version."""
    lines: list[str] = []
    with suppress(OSError):
        lines = [each for each in cpuinfo.read_text().splitlines() if each.startswith(_CPU_FACTS)]
    facts = [tensorflow, platform.machine(), platform.processor(), *sorted(set(lines))]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
