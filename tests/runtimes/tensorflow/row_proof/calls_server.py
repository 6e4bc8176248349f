"""Calls uses of operations in processes of their own: TensorFlow ends a process at some uses.

    python -m tests.runtimes.tensorflow.row_proof.calls_server FIRST STEP USES SEED [OPERATION ...]

The server loads TensorFlow and runs nothing. For some operations at a time it forks a child, which calls their uses and
prints a line of JSON for each; where a child is killed, the next one goes on behind the use that killed it.

Each use is walked by the proof, and called for a, for b and for both. Every value that the proof gives is held to what
it says of these three (meaning.py).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.agreement import moved_inputs
from app.core.inference import Array
from app.runtimes.tensorflow.row_proof import rules  # noqa: F401 - entering the rules
from app.runtimes.tensorflow.row_proof.abstract_values import Rows, Taint, Value
from app.runtimes.tensorflow.row_proof.bodies import graph_body
from app.runtimes.tensorflow.row_proof.call import RULES
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, symbol
from app.runtimes.tensorflow.row_proof.origins import Origins
from app.runtimes.tensorflow.row_proof.walk import Walk
from tests.runtimes.tensorflow.row_proof import (  # noqa: F401 - they enter recipes
    uses_of_entries,
    uses_of_numbers,
    uses_of_shapes,
    uses_of_tokens,
)
from tests.runtimes.tensorflow.row_proof.drawing import COLUMNS, WIDTH, Use
from tests.runtimes.tensorflow.row_proof.meaning import Calls, broken_law, is_proven
from tests.runtimes.tensorflow.row_proof.uses import NOT_CALLED, RECIPES, use_of
from tests.runtimes.tensorflow.row_proof.uses_of_programs import PROGRAM

#: Operations of a child. Chosen: a fork takes some ms, its first call some more.
_OPERATIONS = 24

#: Rows of a and of b. Some add up to the sizes of other axes, so that axes may be mistaken.
_ROWS = ((2, 2), (1, 1), (1, 3), (3, 2), (5, 1))

#: Pairs of requests for each use. Chosen.
_TRIALS = 3

#: A use that takes longer is killed.
_LIMIT_S = 20

_SKIPPED = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    NotImplementedError,
    StopIteration,
    OverflowError,
    AttributeError,
    ZeroDivisionError,
    tf.errors.FailedPreconditionError,  # of shapes, from libraries
)


def operations() -> list[str]:
    return sorted(set(RULES) - set(NOT_CALLED))


def values_of(use: Use) -> tuple[Value, ...] | None:
    """What the proof says of each result; None if the operands are none that the operation takes."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, COLUMNS], "x")
        u = tf.compat.v1.placeholder(tf.float32, [None, None], "u")
        try:
            results = [tf.identity(each) for each in use(x, u)]
        except _SKIPPED:
            return None
    definition = graph.as_graph_def()
    walk = Walk(definition.library.function, Origins(2), {}, vector_keys=False)
    body = graph_body(definition.node, ["x:0", "u:0"], [each.name for each in results])
    rows = symbol(ROWS)
    return walk.run(body, (Rows((rows, COLUMNS), origins=1), Rows((rows, walk.symbols.fresh()), origins=2)))


def requests(number: int, seed: int) -> Iterator[list[list[Array]]]:
    """Inputs of a, of b and of both; each use begins with other sizes."""
    random = np.random.default_rng([number, seed])
    for sizes in [_ROWS[(number + n) % len(_ROWS)] for n in range(_TRIALS)]:
        made = []
        for rows in sizes:
            x = random.integers(-8, 9, (rows, COLUMNS)) / 2.0
            x[random.random(x.shape) < 0.15] = 0.0
            x[random.random(x.shape) < 0.03] = 40.0
            if rows > 1 and random.random() < 0.3:
                x[1] = x[0]
            made.append([x.astype("float32"), (random.integers(1, 5, (rows, WIDTH)) / 2).astype("float32")])
        yield [*made, [np.concatenate(pair) for pair in zip(*made, strict=True)]]


def compared(use: Use, number: int = 0, seed: int = 0, *, distinct: bool = False) -> dict[str, Any]:
    """What became of one use. `said`: the kind of each value. `wrong`: what it says that is not so.

    number, seed: which requests. distinct: as in meaning.py.
    """
    values = values_of(use)
    if values is None:
        return {"skipped": "operands"}
    said = [
        "proven" if is_proven(each) else each.verdict if isinstance(each, Taint) else type(each).__name__
        for each in values
    ]
    found: dict[str, Any] = {"said": said, "calls": 0, "wrong": []}
    if all(isinstance(each, Taint) for each in values):
        return found
    known: dict[int, int] = {}
    for trial in requests(number, seed):
        try:
            broken = _broken(use, values, trial, known, distinct=distinct)
        except (tf.errors.OpError, *_SKIPPED) as error:
            found["error"] = str(error)[:100]
            continue
        found["calls"] += 1
        found["wrong"] += broken
        if broken:
            break
    return found


def _broken(
    use: Use, values: tuple[Value, ...], trial: list[list[Array]], known: dict[int, int], *, distinct: bool
) -> list[str]:
    """What the values say that is not so in the calls for a, for b and for both."""
    results = [_call(use, x, u) for x, u in trial]
    calls = Calls((len(trial[0][0]), len(trial[1][0]), len(trial[2][0])), known, distinct=distinct)
    said = [broken_law(value, [each[n] for each in results], calls) for n, value in enumerate(values)]
    if any(said):  # is it more than rounding?
        x, u = trial[2]
        moved = _call(use, moved_inputs({"": x}, np.random.default_rng(0))[""], u)
        said = [broken_law(value, [each[n] for each in results], calls, moved[n]) for n, value in enumerate(values)]
    return [f"result {n}, {values[n]}: {each} (rows: {calls.rows})"[:600] for n, each in enumerate(said) if each]


def _call(use: Use, x: Array, u: Array) -> list[Array]:
    return [np.asarray(each.numpy()) for each in use(tf.constant(x), tf.constant(u))]


def run_child(write: int, names: list[str], begin: tuple[int, int], uses: int, seed: int) -> None:
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    for place in range(begin[0], len(names)):
        count = uses if names[place] in RECIPES else -(-uses // 3)  # there is less to choose without a recipe
        for number in range(begin[1] if place == begin[0] else 0, count):
            os.write(write, f"{place} {number}\n".encode())
            signal.alarm(_LIMIT_S)
            try:
                found = compared(use_of(names[place], number, seed), number, seed, distinct=names[place] == PROGRAM)
            except Exception:
                found = {"failed": traceback.format_exc()[-1500:]}
            if "skipped" not in found:
                _tell({"operation": names[place], "use": number, **found})


def _tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def called(names: list[str], uses: int, seed: int) -> None:
    begin = (0, 0)
    while begin[0] < len(names):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            status = 1
            try:
                run_child(write, names, begin, uses, seed)
                status = 0
            finally:  # nothing of the server is run in its child
                os._exit(status)
        os.close(write)
        with os.fdopen(read) as pipe:
            last = pipe.read().split("\n")[-2:-1]
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            if status:
                raise RuntimeError(f"a child ended with {status} at {last}")
            return
        place, number = map(int, last[0].split()) if last else begin
        _tell({"operation": names[place], "use": number, "killed": os.WTERMSIG(status)})
        begin = (place, number + 1) if number + 1 < uses else (place + 1, 0)


def main(first: int, step: int, uses: int, seed: int, *names: str) -> None:
    wanted = (list(names) or operations())[first::step]
    for start in range(0, len(wanted), _OPERATIONS):
        called(wanted[start : start + _OPERATIONS], uses, seed)


if __name__ == "__main__":
    main(*[int(each) for each in sys.argv[1:5]], *sys.argv[5:])
