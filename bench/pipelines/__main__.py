"""What pipelines gain and cost, in ratios of one run on one machine.

    python -m bench.pipelines [trees] [loop] [images] [steps] [cascade] [swaps]
                              [--rounds 5] [--seconds 2] [--callers 64] [--cores 1] [--swaps 100] [--json FILE]

Each part states what was predicted, takes turns with what it is compared with, checks that all answers agree, and adds
to the table of goals at the end. All but `swaps` run in this process, by Ferry's own engine, without HTTP. Whatever is
compared has the same cores: one, by default, and so calls of one thread. Ends with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

import uvloop

from app.server.memory import keep_freed_memory
from bench.support.cores import on_cores
from bench.support.machine import load_average, machine_line

PARTS = ("trees", "loop", "images", "steps", "cascade", "swaps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="all, if none is named")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each way in a round")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--cores", type=int, default=1, help="of all but swaps")
    parser.add_argument("--swaps", type=int, default=100, help="of versions of models and pipelines")
    parser.add_argument("--json", type=Path, help="file for the figures: by goal, those of the rounds")
    arguments = parser.parse_args()
    parts = arguments.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}, only {', '.join(PARTS)}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before anything imports TensorFlow
    keep_freed_memory()  # likewise, as a server does
    sys.exit(measure(parts, arguments))


def measure(parts: list[str], arguments: argparse.Namespace) -> bool:
    """Prints what was measured. Returns whether a goal is missed."""
    import tensorflow as tf  # noqa: PLC0415 - see main

    from bench.pipelines.figures import Figures, missed, table  # noqa: PLC0415 - see main
    from bench.pipelines.options import Options  # noqa: PLC0415 - likewise

    options = Options(arguments.rounds, arguments.seconds, arguments.callers, arguments.cores, arguments.swaps)
    tf.config.threading.set_intra_op_parallelism_threads(1)  # of what is compared with Ferry, too
    cores = sorted(os.sched_getaffinity(0))
    print(machine_line())
    if load_average() > 0.5:
        print(f"Others are at work here: load {load_average():.1f}")
    figures: Figures = {}
    for name in parts:
        part = importlib.import_module(f"bench.pipelines.{name}")
        print(f"\n{name}: {part.__doc__}", flush=True)
        own = cores if name == "swaps" else cores[-options.cores :]
        with tempfile.TemporaryDirectory() as folder, on_cores(frozenset(own)):
            found = uvloop.run(part.measure(Path(folder), options))
        for key, values in found.items():
            figures.setdefault(key, []).extend(values)
        if arguments.json:
            arguments.json.write_text(json.dumps(figures))
    print("\n" + "\n".join(table(figures)))
    return missed(figures)


if __name__ == "__main__":
    main()
