"""Ferry beside its peers and against its goals: the same SavedModels, load and machine, in alternating runs.

    python -m bench.run [--parts mlp,memory,...] [--peers ferry,mosec,...] [--rounds 5] [--seconds 2] [--quick] [--add]

Parts are workloads and scripts, which run in a process each: scripts first, then workloads, those with goals first.
Makes an environment for each peer in the cache (some GB; BENCH_CACHE names another folder), makes the models, runs,
prints the page and writes bench/results/NAME.md, .json and .png. Needs wrk. docs/benchmark.md says more.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.models import ensure_models
from bench.page import markdown
from bench.peers.comparison import Figures, compare
from bench.peers.descriptor import Peer, find_peers
from bench.peers.environments import EnvironmentFailed, python_of
from bench.peers.peer_under_load import VARIANTS, python
from bench.peers.plan import expected_s
from bench.support.cache import ROOT
from bench.support.machine import commit, load_average, machine_line, require, version_of
from bench.support.progress import Progress
from bench.support.scripts import SCRIPTS, Script, run_script
from bench.support.workloads import WORKLOADS, Workload

RESULTS = ROOT / "bench" / "results"


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("The benchmark was stopped"))  # the peers end with it
    require("wrk")
    peers = chosen(options.peers, find_peers(), "peers")
    parts = chosen(options.parts, SCRIPTS | WORKLOADS, "parts")
    scripts = [part for part in parts if isinstance(part, Script)]
    workloads = [shaped(part, options) for part in parts if isinstance(part, Workload)]
    prepare(peers)
    progress = Progress(sum(each.expected_s for each in scripts) + sum(expected_s(peers, each) for each in workloads))
    progress.say(f"Begins: {', '.join(part.name for part in parts)}")
    results = Results(options.name, peers, add=options.add)
    try:
        for script in scripts:
            progress.say(f"{script.name}: {script.about}")
            results.keep_script(script, run_script(script, options.quick))
            progress.advance(script.expected_s)
        for workload in workloads:
            compare(workload, peers, progress, lambda figures, workload=workload: results.keep(workload, figures))
    except KeyboardInterrupt:
        progress.say("!!! interrupted: what was measured is kept")
    print(results.page())
    print(f"Written: {RESULTS / options.name}.md, .json" + (", .png" if draw(options.name) else "; no picture"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="", help=f"of {', '.join(SCRIPTS | WORKLOADS)}; all")
    parser.add_argument("--peers", default="", help="names of folders in bench/peers, by commas; all")
    parser.add_argument("--seconds", type=float, help="of each run; wrk takes whole ones")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--connections", type=int)
    parser.add_argument("--closed-only", action="store_true", help="no open loop")
    parser.add_argument("--quick", action="store_true", help="1 round of 2 s: does it work? No figures to quote")
    parser.add_argument("--name", default="peers", help="of the files in bench/results")
    parser.add_argument("--add", action="store_true", help="keep the other parts of those files")
    options = parser.parse_args()
    for name in ("seconds", "rounds", "connections"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


def chosen(names: str, known: Mapping[str, Any], what: str) -> list[Any]:
    """In the order of `known`."""
    wanted = [name for name in names.split(",") if name] or list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"--{what} knows no {', '.join(unknown)}; it knows {', '.join(known)}")
    return [each for name, each in known.items() if name in wanted]


def shaped(workload: Workload, options: argparse.Namespace) -> Workload:
    """As the options want it."""
    changes = {name: getattr(options, name) for name in ("seconds", "rounds", "connections")}
    if options.quick:
        changes |= {"seconds": 2.0, "rounds": 1, "open_rounds": min(1, workload.open_rounds)}
    if options.closed_only:
        changes["open_rounds"] = 0
    return dataclasses.replace(workload, **{name: value for name, value in changes.items() if value is not None})


def prepare(peers: Sequence[Peer]) -> None:
    """What may take long and is no measurement: environments, models. Ferry searches its variants anew."""
    ensure_models()
    shutil.rmtree(VARIANTS, ignore_errors=True)
    for peer in peers:
        try:
            python(peer)
        except EnvironmentFailed as error:
            print(f"!!! {peer.name}: {error}", file=sys.stderr)  # the table will say so


class Results:
    """The document, written after every round: what was measured stays where a run is cut short."""

    def __init__(self, name: str, peers: Sequence[Peer], *, add: bool) -> None:
        self._name = name
        file = RESULTS / f"{name}.json"
        before = json.loads(file.read_text()) if add and file.is_file() else {}
        titles = {peer.name: peer.title for peer in peers}
        about = {peer.name: {"version": version(peer), "about": peer.about} for peer in peers}
        self._document: dict[str, Any] = {
            "name": name,
            "machine": machine_line(),
            "titles": {**before.get("titles", {}), **titles},
            "about": {**before.get("about", {}), **about},
            "scripts": before.get("scripts", {}),
            "workloads": before.get("workloads", []),
        }
        self._load_average = load_average()

    def keep_script(self, script: Script, outcome: dict[str, Any]) -> None:
        self._document["scripts"][script.name] = {"about": script.about, **self._when(), **outcome}
        self._write()

    def keep(self, workload: Workload, figures: Figures) -> None:
        peers = {name: dataclasses.asdict(each) for name, each in figures.items()}
        mine = {**dataclasses.asdict(workload), **self._when(), "peers": peers}
        others = [each for each in self._document["workloads"] if each["name"] != workload.name]
        order = list(WORKLOADS)
        self._document["workloads"] = sorted([*others, mine], key=lambda each: order.index(each["name"]))
        self._write()

    def page(self) -> str:
        return markdown(self._document)

    def _when(self) -> dict[str, Any]:
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        return {"commit": commit(), "when": when, "load_average": self._load_average}

    def _write(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self._name}.json").write_text(json.dumps(self._document, indent=1) + "\n")
        (RESULTS / f"{self._name}.md").write_text(self.page())


def version(peer: Peer) -> str:
    """As its requirements pin it; what runs in Ferry's environment, as installed there."""
    if peer.requirements is None:
        return version_of(peer.distribution)
    pins = (line.split("==") for line in peer.requirements.read_text().splitlines() if "==" in line and line[0] != "#")
    return next((pin.split()[0] for name, pin in pins if name == peer.distribution), "not pinned")


def draw(name: str) -> bool:
    """In an environment of its own: Ferry does not need matplotlib."""
    try:
        drawing = python_of("bench", ROOT / "requirements" / "bench.txt")
    except EnvironmentFailed as error:
        print(f"!!! no picture: {error}", file=sys.stderr)
        return False
    files: Sequence[Path] = (RESULTS / f"{name}.json", RESULTS / f"{name}.png")
    done = subprocess.run([drawing, "-m", "bench.plot", *files], cwd=ROOT, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    main()
