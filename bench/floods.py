"""Floods of one stranger at a real server: how long do `/livez` and a small predict take beside them?

    python -m bench.floods [--modes one,tls,frontends] [--floods WORDS] [--seconds 4] [--rounds 3]
                           [--json FILE]

Each flood (bench/flood_parts/floods.py) comes from a process of its own, from the address of those who ask: the worst
case, since peers have turns. Two threads ask meanwhile, every 5 ms on a connection each. Prints for each mode and flood
the slowest answers of all rounds, and by how much the memory of the server's processes grew. Server, flood and the
clients who ask share the machine's cores: in the last column are the slowest answers of a bare server, asked at the
same time. What it is late, the machine is. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.flood_parts.asking import Measured, asked
from bench.flood_parts.floods import FLOODS
from bench.flood_parts.sending import Server, flooding
from bench.support.bare_server import bare_server
from bench.support.figures import save
from bench.support.goals import all_met, of_script
from bench.support.live_server import live_process
from tests.support.processes import free_port
from tests.transports.tls.certificates import Authority

MODES = ("one", "tls", "frontends")

QUIET = "(quiet)"


def worst(rounds: Sequence[Measured]) -> Measured:
    """Of each figure the worst of the rounds."""
    return Measured(*map(max, zip(*rounds, strict=True)))


def passes(each: Measured) -> bool:
    """The goals hold of this flood."""
    return all_met(of_script("floods", figures_of([each])))


def figures_of(found: Sequence[Measured]) -> dict[str, list[float]]:
    """By the goals' names, one figure of each flood."""
    return {name: [getattr(each, name) for each in found] for name in Measured._fields}


def line(mode: str, flood: str, each: Measured) -> str:
    verdict = "" if passes(each) else "FAIL"
    failures = f"{each.failures} failures" if each.failures else ""
    return (
        f"{mode:10} {flood:30} {each.livez_ms:8.0f} {each.predict_ms:8.0f} {each.grown_mib:6.0f} {each.bare_ms:8.0f}  "
        f"{verdict} {failures}".rstrip()
    )


def head() -> str:
    return f"{'mode':10} {'flood':30} {'livez ms':>8} {'predict':>8} {'MiB':>6} {'bare ms':>8}"


@contextmanager
def served(mode: str) -> Iterator[tuple[Server, int]]:
    """A server of models/, and its process number."""
    grpc = free_port()
    if mode != "tls":
        more = {"frontends": 2} if mode == "frontends" else {}
        with live_process(models="models", grpc_port=grpc, **more) as (port, pid):
            yield Server(port, grpc), pid
        return
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        certificate, key = authority.issue()
        settings: dict[str, object] = {"tls_certificate": certificate, "tls_key": key, "operator_port_tls": "off"}
        with live_process(models="models", grpc_port=grpc, operator_port=free_port(), **settings) as (port, pid):
            yield Server(port, grpc, authority.certificate), pid


def measure(mode: str, floods: Sequence[str], rounds: int, seconds: float) -> dict[str, Measured]:
    """The worst of the rounds by flood, on one server."""
    found: dict[str, Measured] = {}
    with served(mode) as (server, pid), bare_server() as bare:
        one = partial(_one, server, pid, bare)
        one(QUIET, 1.0)  # first requests of their kind cost more
        for flood in [QUIET, *floods]:
            if flood in FLOODS and FLOODS[flood].needs_tls and server.authority is None:
                continue
            found[flood] = worst([one(flood, seconds) for _ in range(rounds)])
            print(line(mode, flood, found[flood]), flush=True)
    return found


def _one(server: Server, pid: int, bare: int, flood: str, seconds: float) -> Measured:
    with asked(server, pid, bare) as measured:
        if flood == QUIET:
            time.sleep(seconds)
        else:
            with flooding(flood, server, seconds):
                pass
    return measured()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--floods", default="", help="those whose names have one of these words, with commas between")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each flood")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    modes = options.modes.split(",")
    if unknown := set(modes) - set(MODES):
        parser.error(f"--modes knows {', '.join(MODES)}, not {', '.join(sorted(unknown))}")
    floods = chosen(options.floods)
    print(head())
    found = [each for mode in modes for each in measure(mode, floods, options.rounds, options.seconds).values()]
    save(options.json, figures_of(found))
    sys.exit(not all(map(passes, found)))


def chosen(words: str) -> list[str]:
    """The floods whose names have one of the words; all without any."""
    return [name for name in FLOODS if any(word in name for word in words.split(","))]


if __name__ == "__main__":
    main()
