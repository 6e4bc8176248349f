"""What the GPU says of itself while a part runs: use, memory, power, clocks, by nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

#: What is asked, and what it is called here, with its unit.
FIELDS = {
    "utilization.gpu": "GPU in use, %",
    "utilization.memory": "its memory's bus in use, %",
    "memory.used": "memory, MiB",
    "power.draw": "power, W",
    "clocks.sm": "clock, MHz",
    "clocks.mem": "memory's clock, MHz",
    "temperature.gpu": "temperature, C",
    "pcie.link.gen.current": "PCIe generation",
    "pcie.link.width.current": "PCIe lanes",
}

#: Seconds between two questions. Chosen: the driver's own figures are of some 0.2 to 1 s.
_PAUSE_S = 0.5

#: Median and most of each field, of all samples and GPUs.
Watched = dict[str, tuple[float, float]]


class Monitor:
    """Asks a program that prints a line of all FIELDS for each GPU, again and again, in a thread.

    Attributes:
        missing: why nothing is read; empty if something is.
    """

    def __init__(self, command: Sequence[str] | None = None, pause_s: float = _PAUSE_S) -> None:
        program = shutil.which("nvidia-smi") or ""
        query = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
        self._command = command or query
        self._pause_s = pause_s
        self.missing = "" if command or program else "there is no nvidia-smi on this machine"

    @contextmanager
    def watching(self) -> Iterator[Watched]:
        """Yields what is filled when the block ends; nothing if nothing can be read."""
        watched: Watched = {}
        if self.missing:
            yield watched
            return
        lines: list[str] = []
        over = threading.Event()
        thread = threading.Thread(target=self._ask, args=(lines, over), daemon=True)
        thread.start()
        try:
            yield watched
        finally:
            over.set()
            thread.join()
            watched |= summary(lines)
            if not watched:
                self.missing = f"{self._command[0]} says nothing that could be read"

    def _ask(self, lines: list[str], over: threading.Event) -> None:
        while True:
            try:
                done = subprocess.run(self._command, capture_output=True, text=True, check=False, timeout=30)
                lines += done.stdout.splitlines()
            except (OSError, subprocess.SubprocessError):
                pass  # the next answer counts; without any the page says so
            if over.wait(self._pause_s):
                return


def summary(lines: Sequence[str]) -> Watched:
    """Of lines of comma-separated values; what is no number ('[N/A]') does not count."""
    columns: dict[str, list[float]] = {name: [] for name in FIELDS.values()}
    for line in lines:
        for name, text in zip(FIELDS.values(), line.split(","), strict=False):
            try:
                columns[name].append(float(text))
            except ValueError:
                continue
    return {name: (median(values), max(values)) for name, values in columns.items() if values}
