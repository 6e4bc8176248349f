"""Each operation of the tables, with operands of every kind that it takes, beside real calls.

The uses are made by a machine (uses.py). Every value that the proof gives is held to what it says: of rows along any
axis, of sizes, of places, of what is the same for all requests (meaning.py). TensorFlow ends the process at some uses,
so they are called in processes of their own (calls_server.py).

More uses, or others:

    python -m tests.runtimes.tensorflow.row_proof.calls_server 0 1 1000 7 Einsum MatMul
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.tensorflow.row_proof import rules  # noqa: F401 - entering the rules
from app.runtimes.tensorflow.row_proof.abstract_values import Taint
from app.runtimes.tensorflow.row_proof.call import RULES
from tests.runtimes.tensorflow.row_proof.calls_server import operations, values_of
from tests.runtimes.tensorflow.row_proof.meaning import is_proven
from tests.runtimes.tensorflow.row_proof.uses import NOT_CALLED, use_of
from tests.runtimes.tensorflow.row_proof.uses_of_programs import PROGRAM
from tests.support.forks.programs import run_program

_ROOT = Path(__file__).parents[4]

#: Uses of an operation with a recipe; others have a third. Chosen: all of these take less than a minute.
_USES = 20

#: Programs of a few steps. Chosen: a third of them fit together; some seconds.
_PROGRAMS = 500

#: Of these nothing is ever known that a call could contradict: they mix rows, or are not followed.
_NOTHING_KNOWN = {"RandomShuffle", "TensorListElementShape"}

#: Operations that have uses whose rows are proven, of some 340 that are called. The rest give sizes, places or numbers.
_PROVEN = 290

_ABORTING = """
import os
from tests.runtimes.tensorflow.row_proof import calls_server, uses
def aborting(draw, operation):
    ends = draw.chance(0.5)
    return lambda x, u: os.abort() if ends and calls_server.tf.executing_eagerly() else [abs(x)]
uses.RECIPES["Abs"] = aborting
calls_server.called(["Abs", "Neg"], 12, 0)
"""


def _lines(*arguments: str) -> list[dict[str, Any]]:
    """What became of uses that were called."""
    done = run_program(*arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


_SERVER = ("-m", "tests.runtimes.tensorflow.row_proof.calls_server", "0", "1")


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return _lines(*_SERVER, str(_USES), "0")


def test_the_tables_are_loaded() -> None:
    assert len(RULES) > 300


def test_calls_are_as_the_proof_says(lines: list[dict[str, Any]]) -> None:
    assert [line for line in lines if line.get("wrong") or "failed" in line] == []


def test_calls_of_programs_are_as_the_proof_says() -> None:
    programs = _lines(*_SERVER, str(_PROGRAMS), "0", PROGRAM)
    assert [line for line in programs if line.get("wrong") or "failed" in line] == []
    assert sum("proven" in line["said"] for line in programs if line.get("calls")) > 20


def test_all_operations_are_called_but_those_that_are_named(lines: list[dict[str, Any]]) -> None:
    called = {line["operation"] for line in lines if line.get("calls")}
    assert set(operations()) - called == _NOTHING_KNOWN
    assert set(NOT_CALLED) <= set(RULES)


def test_most_operations_are_proven_somewhere(lines: list[dict[str, Any]]) -> None:
    proven = Counter(line["operation"] for line in lines if line.get("calls") and "proven" in line["said"])
    assert len(proven) >= _PROVEN
    assert {"mixes", "unknown"} <= {each for line in lines for each in line.get("said", [])}


def test_a_use_that_ends_the_process_costs_itself_alone() -> None:
    found = _lines("-c", _ABORTING)
    of_abs = [line for line in found if line["operation"] == "Abs"]
    assert {line["use"] for line in of_abs} == set(range(12))
    assert {"killed", "calls"} <= {name for line in of_abs for name in line}
    assert any(line["operation"] == "Neg" and line["calls"] for line in found)


def test_the_proof_fails_at_no_use() -> None:
    """In this process, without calls."""
    said = set()
    for operation in operations():
        for number in range(2):
            values = values_of(use_of(operation, number)) or ()
            said |= {each.verdict if isinstance(each, Taint) else is_proven(each) for each in values}
    assert {True, "mixes", "unknown"} <= said
