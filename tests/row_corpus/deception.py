"""A deception: a small function that a proof by graph may take for one of independent rows, or for one that mixes.

Whether its rows mix is not written down: real calls say it (`mixing_outputs`). The proof may leave out a function that
is independent, and must never prove an output that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from tests.row_corpus.row_case import Draw, Inputs, alike, called, halves, joined, save, spec, texts

#: Rows of the requests of one call: each of 1, 2, 3, 5 and 8, beside others and beside its like.
COMPANY = ((1, 1), (1, 2), (2, 1, 1), (2, 3), (3, 5), (5, 3), (8, 1), (1, 8), (5, 8), (2, 2), (3, 3, 2))


@dataclass(frozen=True, kw_only=True)
class Deception:
    """One function.

    call: takes the tensors of `specs`, and gives a tensor, which becomes the output y, or a dictionary.
    made: called before, with nothing; its variables and tables go to `call` behind the tensors.
    """

    name: str
    call: Callable[..., Any]
    specs: Sequence[Any]
    draw: Draw
    made: Callable[[], Mapping[str, Any]] = dict

    def save(self, path: Path) -> None:
        """Writes it as a SavedModel with one signature."""
        tracked = self.made()

        def call(*tensors: Any) -> Any:
            found = self.call(*tensors, *tracked.values())
            return found if isinstance(found, dict) else {"y": found}

        save(path, call, self.specs, **tracked)


def mixing_outputs(function: Any, draw: Draw, seed: int = 0, times: int = 2) -> set[str]:
    """The outputs that differ in some company, or that are not always there."""
    rng = np.random.default_rng(seed)
    found: set[str] = set()
    for sizes in COMPANY * times:
        found |= _mixed(function, [draw(rng, rows) for rows in sizes])
    return found


def _mixed(function: Any, requests: Sequence[Inputs]) -> set[str]:
    try:
        alone = [called(function, each) for each in requests]
    except (tf.errors.OpError, ValueError):
        return set()  # not valid alone
    try:
        together = called(function, joined(requests))
    except (tf.errors.OpError, ValueError):
        return set(function.structured_outputs)
    return {name for name in together if not _joins(together[name], [each[name] for each in alone])}


def _joins(together: Array, alone: Sequence[Array]) -> bool:
    if not all(each.ndim for each in (together, *alone)) or len({each.shape[1:] for each in alone}) > 1:
        return False
    return alike(together, np.concatenate(list(alone)))


def drawn(write: Callable[[np.random.Generator, int], Array], name: str = "x") -> Draw:
    return lambda rng, rows: {name: write(rng, rows)}


class Given:
    """What a deception takes: the signature's inputs, and how they are drawn."""

    def __init__(self, specs: Sequence[Any], draw: Draw) -> None:
        self.specs = specs
        self.draw = draw

    def __call__(self, name: str, call: Callable[..., Any], made: Callable[[], Mapping[str, Any]] = dict) -> Deception:
        return Deception(name=name, call=call, specs=self.specs, draw=self.draw, made=made)

    def all(self, **calls: Callable[..., Any]) -> list[Deception]:
        """Each by its name."""
        return [self(name, call) for name, call in calls.items()]


#: x [rows], [rows, 4], [rows, 2, 3], [rows, 4, 4, 2].
COLUMN = Given([spec("x", None)], drawn(halves))
MATRIX = Given([spec("x", None, 4)], drawn(lambda rng, rows: halves(rng, rows, 4)))
CUBE = Given([spec("x", None, 2, 3)], drawn(lambda rng, rows: halves(rng, rows, 2, 3)))
IMAGE = Given([spec("x", None, 4, 4, 2)], drawn(lambda rng, rows: halves(rng, rows, 4, 4, 2)))

#: x [rows, any]: of 3, which the graph does not know.
OPEN = Given([spec("x", None, None)], drawn(lambda rng, rows: halves(rng, rows, 3)))

#: x of any rank: [rows, 3].
ANY = Given([tf.TensorSpec(None, tf.float32, name="x")], drawn(lambda rng, rows: halves(rng, rows, 3)))

#: x [rows, time, 3] of a length that the graph does not know.
SEQUENCE = Given([spec("x", None, None, 3)], drawn(lambda rng, rows: halves(rng, rows, 4, 3)))

#: x [rows, 3] of 0 to 4, and [rows] of them.
NUMBERS = Given(
    [spec("x", None, 3, dtype=tf.int32)], drawn(lambda rng, rows: rng.integers(0, 5, (rows, 3)).astype(np.int32))
)
NUMBER = Given([spec("x", None, dtype=tf.int32)], drawn(lambda rng, rows: rng.integers(0, 5, rows).astype(np.int32)))

_WORDS = (b"a", b"bb", b"ccc dd", b"e f g", b"")
TEXT = Given(
    [spec("x", None, dtype=tf.string)],
    drawn(lambda rng, rows: texts([_WORDS[each] for each in rng.integers(0, len(_WORDS), rows)])),
)

#: Two inputs: a and b [rows, 4] that always come with equally many rows; and with a scalar that is always the same.
TWO = Given(
    [spec("a", None, 4), spec("b", None, 4)],
    lambda rng, rows: {"a": halves(rng, rows, 4), "b": halves(rng, rows, 4)},
)
