"""How long a server takes until it is ready, beside the import of TensorFlow, which no server can leave out.

    python -m bench.start_up [--rounds 5] [--small 100] [--revision REVISION] [--models FOLDER]

In each round, in turn: a process that imports TensorFlow and nothing else; a first start with the shipped models, with
nothing remembered of earlier ones; a second start, when what the first one found is remembered; a start with many small
models. `--revision` starts the same servers from a checkout of another revision, too. A start ends with the first 200
of /readyz; `tuned` is when nothing in the background makes models faster any more. Prints seconds and, by round,
multiples of the import; what was measured is told when it is stopped, too.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.models import ensure_models, saved_model
from bench.support.cache import ROOT
from bench.support.figures import Spread, ratio_by_round
from bench.support.live_server import is_ready, is_tuned, started_process
from bench.support.other_tree import other_tree

#: By round, seconds.
Times = dict[int, float]

IMPORT = "import tensorflow"

#: The model that there are many of.
_SMALL = "mlp"

#: Seconds between two looks. Chosen: far less than what is measured.
_LOOK_S = 0.02
_GIVE_UP_S = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", type=int, default=100, help="how many small models; 0 for none")
    parser.add_argument("--revision", help="as git knows it: measured in turn with this tree")
    parser.add_argument("--models", type=Path, default=ROOT / "models", help="those of the first and the second start")
    options = parser.parse_args()
    # The servers and the other tree end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("The measurement was stopped"))
    ensure_models()
    found: dict[str, Times] = {}
    try:
        _measure(options, found)
    finally:
        if found:
            print(table(found), flush=True)


def _measure(options: argparse.Namespace, found: dict[str, Times]) -> None:
    """Adds the seconds of each round to `found` as soon as it ends, and tells them."""
    with ExitStack() as stack:
        trees = {"": ROOT}
        if options.revision:
            trees[f" of {options.revision}"] = stack.enter_context(other_tree(options.revision))
        many = stack.enter_context(_many_models(options.small))
        for number in range(options.rounds + 1):  # the first one fills the page cache
            round_s = _round(trees, options.models, many if options.small else None)
            told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in round_s.items())
            print(f"Round {number} of {options.rounds}: {told}", file=sys.stderr, flush=True)
            for name, seconds in round_s.items() if number else ():
                found.setdefault(name, {})[number] = seconds


def table(found: Mapping[str, Times]) -> str:
    """Median (least-most) of the seconds, and of the multiples of the import in the same round."""
    width = max(map(len, found))
    lines = [f"{'':{width}}  seconds               times the import"]
    for name, times in found.items():
        ratio = ratio_by_round(times, found[IMPORT])
        lines.append(f"{name:{width}}  {_text(Spread.of(list(times.values()))):20}  {_text(ratio) if ratio else ''}")
    return "\n".join(lines)


def _text(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.least:.2f}-{spread.most:.2f})"


def _round(trees: Mapping[str, Path], models: Path, many: Path | None) -> dict[str, float]:
    begin_s = time.monotonic()
    subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    found = {IMPORT: time.monotonic() - begin_s}
    for suffix, tree in trees.items():
        with tempfile.TemporaryDirectory() as cache:
            for name in ("first start", "second start"):
                ready_s, tuned_s = _start(tree, models, Path(cache))
                found |= {f"{name}{suffix}, ready": ready_s, f"{name}{suffix}, tuned": tuned_s}
            if many is not None:
                found[f"small models{suffix}, ready"] = _start(tree, many, Path(cache), tuned=False)[0]
    return found


def _start(tree: Path, models: Path, cache: Path, *, tuned: bool = True) -> tuple[float, float]:
    """Seconds until ready, and until tuned (0 if that is not waited for)."""
    begin_s = time.monotonic()
    settings = {"models": models, "grpc_port": 0, "variant_cache": cache, "log_level": "error"}
    with started_process(tree, **settings) as (port, process):

        def wait_for(question: str) -> float:
            ask = is_ready if question == "ready" else is_tuned
            while not ask(port):
                if process.poll() is not None or time.monotonic() > begin_s + _GIVE_UP_S:
                    raise RuntimeError(f"The server did not become {question}")
                time.sleep(_LOOK_S)
            return time.monotonic() - begin_s

        return wait_for("ready"), wait_for("tuned") if tuned else 0.0


@contextmanager
def _many_models(count: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            model = Path(folder) / f"small{number}"
            model.mkdir()
            (model / "1").symlink_to(saved_model(_SMALL))
        yield Path(folder)


if __name__ == "__main__":
    main()
