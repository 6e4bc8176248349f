"""Ferry beside its peers: the same SavedModels, the same load, the same machine, in alternating runs.

    python -m bench.peers [--peers ferry,mosec,...] [--workloads mlp,...] [--seconds 5] [--rounds 5] [--quick]

Makes an environment for each peer in the cache (some GB; BENCH_CACHE names another folder), makes the models, runs,
prints a table and writes bench/results/NAME.md, .json and .png. Needs wrk. bench/peers/README.md says more.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench import wrk
from bench.cache import ROOT
from bench.environments import EnvironmentFailed, python_of
from bench.machine import load_average, machine_line, version_of
from bench.models import ensure_models
from bench.peers.comparison import Load, PeerFigures, compare
from bench.peers.descriptor import Peer, find_peers
from bench.peers.report import markdown
from bench.workloads import WORKLOADS

RESULTS = ROOT / "bench" / "results"


def main() -> None:
    options = parse()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit("The benchmark was stopped"))  # the peers end with it
    if not wrk.is_installed():
        sys.exit("The benchmark needs wrk (Debian: apt-get install wrk)")
    peers, workloads = chosen(options.peers, find_peers(), "peers"), chosen(options.workloads, WORKLOADS, "workloads")
    load = Load(options.connections, options.seconds, options.rounds, not options.closed_only)
    ensure_models()
    results: dict[str, Any] = {
        "name": options.name,
        "machine": machine_line(),
        "load_average": load_average(),
        "load": dataclasses.asdict(load),
        "titles": {peer.name: peer.title for peer in peers},
        "about": {peer.name: {"version": version(peer), "about": peer.about} for peer in peers},
        "workloads": [],
    }
    for workload in workloads:
        figures = compare(workload, peers, load, say)
        results["workloads"].append({**dataclasses.asdict(workload), "peers": documents(figures)})
        write(results, options.name)  # what was measured stays if a later workload is interrupted
    print(markdown(results))
    print(f"Written: {RESULTS / options.name}.md, .json" + (", .png" if draw(options.name) else "; no picture"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="", help="names of folders in bench/peers, by commas; all")
    parser.add_argument("--workloads", default="", help=f"of {', '.join(WORKLOADS)}; all")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run; wrk takes whole ones")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--closed-only", action="store_true", help="no open loop")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 2 s: does it work? No figures to quote")
    parser.add_argument("--name", default="peers", help="of the files in bench/results")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds = 2.0, 2
    if options.seconds < 1 or options.rounds < 1 or options.connections < 1:
        parser.error("--seconds, --rounds and --connections must be at least 1")
    return options


def chosen(names: str, known: Mapping[str, Any], what: str) -> list[Any]:
    """In the order of `known`."""
    wanted = [name for name in names.split(",") if name] or list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"--{what} knows no {', '.join(unknown)}; it knows {', '.join(known)}")
    return [each for name, each in known.items() if name in wanted]


def version(peer: Peer) -> str:
    """As its requirements pin it; what runs in Ferry's environment, as installed there."""
    if peer.requirements is None:
        return version_of(peer.distribution)
    pins = (line.split("==") for line in peer.requirements.read_text().splitlines() if "==" in line and line[0] != "#")
    return next((pin.split()[0] for name, pin in pins if name == peer.distribution), "not pinned")


def documents(figures: Mapping[str, PeerFigures]) -> dict[str, Any]:
    return {name: dataclasses.asdict(each) for name, each in figures.items()}


def write(results: Mapping[str, Any], name: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(markdown(results))


def draw(name: str) -> bool:
    """In an environment of its own: Ferry does not need matplotlib."""
    try:
        python = python_of("bench", ROOT / "requirements" / "bench.txt")
    except EnvironmentFailed as error:
        say(f"!!! no picture: {error}")
        return False
    files: Iterable[Path] = (RESULTS / f"{name}.json", RESULTS / f"{name}.png")
    done = subprocess.run([python, "-m", "bench.plot", *files], cwd=ROOT, check=False)
    return done.returncode == 0


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
