"""How long `/livez` takes while models load from storage whose reads are slow, every time.

    python -m bench.slow_storage [--models 5] [--delay-ms 100] [--json FILE]

Nothing here is mounted: a small library (slow_reads.c, built with gcc) makes each read of a file below one folder take
longer, in a real server and in the processes that read for it, and notes who read. Two servers, one without the delay,
get models one after the other; `/livez` is asked every 5 ms from the moment a model appears until it is served. Prints
p99, the worst answer and how many took more than 20 ms, the same of a bare server that was asked at the same time (what
it is late, the machine is), and how many slow reads the server itself made. The exit status is 1 if it made any, since
each could hold up the event loop for the delay (TensorFlow may hold the GIL while it reads), and if p99 with the delay
is above 20 ms, while the bare server's is not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.support.bare_server import bare_server
from bench.support.cache import ROOT
from bench.support.live_server import is_tuned, live_process
from bench.support.livez_watch import P99_GOAL_S, Latency, Ports, Watch, wait_for

_SOURCE = Path(__file__).with_name("slow_reads.c")
_MODEL = ROOT / "models" / "digits"


class Found(NamedTuple):
    """Of the loads with one delay: the answers of `/livez` and of a bare server, and who made slow reads."""

    delay_ms: int
    latency: Latency
    stalls: int
    bare_stalls: int
    server_reads: int
    other_reads: int

    def __str__(self) -> str:
        each = self.latency
        return (
            f"{self.delay_ms:4} ms a read: of {each.answers} answers {self.stalls} above {1e3 * P99_GOAL_S:g} ms, "
            f"p99 {1e3 * each.p99_s:.1f}, worst {1e3 * each.worst_s:.1f} ms (bare server {self.bare_stalls}, "
            f"{1e3 * each.bare_p99_s:.1f}, {1e3 * each.bare_worst_s:.1f}); reads by the server {self.server_reads}, "
            f"by the processes that read for it {self.other_reads}"
        )


def build(folder: Path) -> Path:
    """The library. Exits if there is no compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        sys.exit("bench.slow_storage is skipped: it needs gcc (Debian: apt-get install gcc libc6-dev)")
    library = folder / "slow_reads.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)
    return library


def measure(delay_ms: int, models: int, folder: Path, library: Path, bare_port: int) -> Found:
    """Loads this many models from slow storage in a server of their own."""
    served, log = folder / "models", folder / "reads"
    served.mkdir(parents=True)
    log.touch()
    (served / "quick").symlink_to(_MODEL)  # the server is ready when it serves this one
    slow = {"LD_PRELOAD": library, "SLOW_FOLDER": f"{served}/", "SLOW_LOG": log, "SLOW_MS": delay_ms}
    settings = {"models": served, "grpc_port": 0, "poll_interval_s": 0.2, "settle_s": 0}
    seconds: list[float] = []
    bare_seconds: list[float] = []
    with (
        _environment({name: str(value) for name, value in slow.items()}),
        live_process(variant_cache=folder / "cache", **settings) as (port, server),
    ):
        for number in range(models):
            name = f"slow_{number}"
            shutil.copytree(_MODEL / "1", folder / name / "1")
            watch, bare = map(Watch, Ports(port, bare_port))
            with watch.during(), bare.during():
                (folder / name).rename(served / name)
                wait_for(port, name, "AVAILABLE")
            while not is_tuned(port):  # what makes one model faster does not disturb the load of the next
                time.sleep(0.1)
            seconds += watch.seconds
            bare_seconds += bare.seconds
        readers = [int(line) for line in log.read_text().split()]
    latency = Latency.of(f"{delay_ms} ms", seconds, bare_seconds)
    stalls, bare_stalls = (sum(each > P99_GOAL_S for each in of) for of in (seconds, bare_seconds))
    by_server = readers.count(server)
    return Found(delay_ms, latency, stalls, bare_stalls, by_server, len(readers) - by_server)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=5, help="loads with each delay")
    parser.add_argument("--delay-ms", type=int, default=100)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    found = []
    with tempfile.TemporaryDirectory() as folder, bare_server() as bare_port:
        library = build(Path(folder))
        for delay_ms in (0, options.delay_ms):
            found.append(measure(delay_ms, options.models, Path(folder) / str(delay_ms), library, bare_port))
            print(found[-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps([each._asdict() for each in found]))
    slow = found[-1].latency
    sys.exit(found[-1].server_reads > 0 or slow.p99_s > P99_GOAL_S >= slow.bare_p99_s)


if __name__ == "__main__":
    main()
