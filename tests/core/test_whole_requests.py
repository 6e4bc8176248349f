"""Why requests never share calls: the tensor and its shape are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import ModelSignature, SparseParts, TensorSpec
from app.core.whole_requests import why_whole

Shape = tuple[int | None, ...] | None


def specs(**shapes: Shape) -> dict[str, TensorSpec]:
    return {name: TensorSpec(name, np.dtype(np.float32), shape) for name, shape in shapes.items()}


def why(inputs: dict[str, Shape], outputs: dict[str, Shape], **more: Any) -> str:
    return why_whole(ModelSignature("s", specs(**inputs), specs(**outputs), **more))


ROWS: Shape = (None, 2)
PROVEN = {"y": OutputRows("proven")}
MIXES = {"y": OutputRows("mixes", "Max 'm' runs over the rows, axis 0 of its input")}


def test_requests_that_may_share_calls_have_no_reason() -> None:
    assert not why({"x": ROWS}, {"y": ROWS, "of_any_rank": None})
    assert not why({"x": ROWS, "t": ()}, {"y": ROWS}, graph_rows=GraphRows(PROVEN, frozenset("x"), frozenset("t")))
    parts = SparseParts("i", "v", "n")
    assert not why({"i": (None, 2), "v": (None,), "n": (2,)}, {"y": ROWS}, sparse=(parts,))


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        ({"x": ROWS}, {"y": ()}, "output 'y' has the shape [], without a free first dimension"),
        ({"x": ROWS}, {"y": (32, 8)}, "output 'y' has the shape [32,8], without a free first dimension"),
        ({"x": ROWS, "t": ()}, {"y": ()}, "output 'y' has the shape [], without a free first dimension"),
        ({"x": (1, 2)}, {"y": ROWS}, "input 'x' has the shape [1,2], without a free first dimension"),
        ({"x": None}, {"y": ROWS}, "input 'x' has the shape <unknown rank>, without a free first dimension"),
        ({}, {"y": ROWS}, "it has no inputs"),
        ({"x": ROWS, "t": ()}, {"y": ROWS}, "input 't' has the shape [], without a free first dimension"),
        (
            {"x": ROWS},
            dict.fromkeys("abcde", ()),
            "output 'a' has the shape [], output 'b' has the shape [], output 'c' has the shape [], 2 more, without a "
            "free first dimension",
        ),
    ],
)
def test_the_reason_names_what_has_no_rows(inputs: dict[str, Shape], outputs: dict[str, Shape], reason: str) -> None:
    assert why(inputs, outputs) == reason


def test_beside_an_input_without_rows_the_reason_is_what_the_graph_does_not_prove() -> None:
    read = GraphRows(MIXES, frozenset("x"), frozenset("t"))
    assert why({"x": ROWS, "t": ()}, {"y": ROWS}, graph_rows=read) == (
        "input 't' has the shape [], without a free first dimension, and its graph does not prove that rows stay apart "
        "beside it: output 'y': Max 'm' runs over the rows, axis 0 of its input"
    )


def test_rows_of_several_kinds_are_named_so() -> None:
    read = GraphRows(MIXES, frozenset(["x", "e"]), unequal=True)
    several = "its inputs have rows of several kinds, so that a request is a whole"
    assert why({"x": ROWS, "e": ROWS}, {"y": ROWS}, graph_rows=read) == f"{several}: output 'y': {MIXES['y'].reason}"
    assert why({"x": ROWS}, {"y": ROWS}, mixed_rows=True) == several
