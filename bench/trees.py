"""Trees of 5 to 40 leaves through a pipeline with `fold`, beside callers who ask for the nodes themselves.

    python -m bench.trees [--rounds 5] [--seconds 2] [--callers 64] [--cores 1] [--json FILE]

A TreeLSTM of 128 numbers, by Ferry's own engine in this process, without HTTP, models tuned as in production. The ways
take turns, have the same core and calls of one thread, and all answers agree with numpy's. `max_batch_size` is 256, so
that the nodes that are ready of 64 trees fit into a call: a row of 256 takes 10 % less than one of 64, and what Python
takes for a call is shared by four times as many. Exits with 1 if a goal is missed.

Predicted: a call of 256 nodes takes ten to twenty times as long as one of one node, and each call of its own has the
server's work as well: 20 times as many trees as by nodes. A tree has some nine levels, each with the fixed part of a
call: 5 times as many as by levels through the same server. The event loop takes 33 to 35 % of the processor.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import uvloop

from app.server.memory import keep_freed_memory
from bench.support.cores import on_cores
from bench.support.figures import save
from bench.support.goals import Goal, goals_table, of_script, outcomes, script
from bench.support.machine import machine_line

_NAME = "trees"
GOALS = (
    Goal("trees/s / a node at a time, each a call of its own", 25, None, script(_NAME, "to_node_calls"), "x"),
    Goal(
        "trees/s / the levels of a request through the same server, each a call of its own",
        5,
        None,
        script(_NAME, "to_level_calls"),
        "x",
    ),
    Goal("Python's share of the time", None, 30, script(_NAME, "python_percent"), " %"),
    Goal("one caller's p50", None, 1.2, script(_NAME, "one_caller_ms"), " ms"),
    Goal("answers: furthest from those in numpy", None, 1e-5, script(_NAME, "furthest")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each way in a round")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the figures of the rounds")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    keep_freed_memory()  # as a server does, before anything imports TensorFlow
    from bench.tree_parts.measuring import measure  # noqa: PLC0415 - see the line before

    print(machine_line())
    cores = sorted(os.sched_getaffinity(0))[-options.cores :]
    with tempfile.TemporaryDirectory() as folder, on_cores(frozenset(cores)):
        figures = uvloop.run(measure(Path(folder), options))
    results = of_script(_NAME, figures)
    print("\n" + "\n".join(goals_table(results, GOALS)))
    save(options.json, figures)
    sys.exit(any(outcome.met is False for outcome in outcomes(results, GOALS)))


if __name__ == "__main__":
    main()
