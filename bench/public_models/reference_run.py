"""Runs reference.py in another interpreter for many models, and goes on with the next after a crash or a time over."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.support.cache import ROOT

#: The most seconds for one model, the start of the process included.
_LIMIT_S = 300.0


def run_references(python: Path, folder: Path, names: Sequence[str]) -> Mapping[str, str]:
    """By name of those without a reference: why."""
    failed: dict[str, str] = {}
    left = [name for name in names if not (folder / f"{name}.json").is_file()]
    while left:
        for line in _lines(python, folder, left):
            word, _, rest = line.partition(" ")
            name, _, why = rest.partition(": ")
            if word == "failed":
                failed[name] = why
            if word in {"done", "failed"}:
                left.remove(name)
        if left and left[0] not in failed and not (folder / f"{left[0]}.json").is_file():
            failed[left[0]] = "the process of its own library ended, or took too long"
            left.pop(0)
    return failed


def _lines(python: Path, folder: Path, names: Sequence[str]) -> Sequence[str]:
    """What one process says until it ends, or says nothing for too long."""
    command = [str(python), "-m", "bench.public_models.reference", str(folder), *names]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    said: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, said), daemon=True)
    reader.start()
    lines = []
    try:
        while line := said.get(timeout=_LIMIT_S):
            lines.append(line)
    except queue.Empty:
        process.kill()
    process.wait()
    reader.join()
    return lines


def _read(process: subprocess.Popen[str], said: queue.Queue[str]) -> None:
    assert process.stdout
    for line in process.stdout:
        if line.strip():
            said.put(line.strip())
    said.put("")
