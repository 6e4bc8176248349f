"""Requests to a running server over HTTP, and what the model itself answers to each of them alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.core.inference import STRING, Array
from tests.row_corpus.row_case import DirectCalls, Inputs, Outputs, RowCase, alike


def _plain(values: Any) -> Any:
    """Lists that JSON can write: bytes become {"b64": ...}."""
    if isinstance(values, list):
        return [_plain(each) for each in values]
    return {"b64": base64.b64encode(values).decode()} if isinstance(values, bytes) else values


def body_of(inputs: Inputs) -> bytes:
    """In the column form of TensorFlow Serving."""
    return json.dumps({"inputs": {name: _plain(array.tolist()) for name, array in inputs.items()}}).encode()


@dataclass(slots=True)
class Asked:
    """One request to one model.

    right: replies that were found right; a reply that came before costs a look.
    """

    model: str
    inputs: Inputs
    expected: Outputs
    body: bytes = b""
    right: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.body = self.body or body_of(self.inputs)

    @property
    def path(self) -> str:
        return f"/v1/models/{self.model}:predict"

    def problem(self, status: int, content: bytes) -> str:
        """What is wrong with the reply; nothing if it is right."""
        if status == 200 and content in self.right:
            return ""
        if status != 200:
            return f"status {status} {content[:200]!r}"
        if problem := self._difference(json.loads(content)["outputs"]):
            return problem
        self.right.add(content)
        return ""

    def _difference(self, outputs: Any) -> str:
        found: Mapping[str, Any] = outputs if len(self.expected) > 1 else {next(iter(self.expected)): outputs}
        for name, expected in self.expected.items():
            got = array_of(found[name], expected)
            if not alike(got, expected):
                return f"{name} is {_shown(got)} instead of {_shown(expected)}"
        return ""


def array_of(values: Any, like: Array) -> Array:
    """Of the type of the expected one."""
    if like.dtype != STRING:
        return np.array(values, like.dtype)
    array = np.array(values, STRING)
    return np.array([each.encode() for each in array.ravel()], STRING).reshape(array.shape)


def _shown(array: Array) -> str:
    return f"{list(array.shape)} {' '.join(str(array).split())[:120]}"


def asked(direct: DirectCalls, case: RowCase, rows: Sequence[int], seed: int = 0, model: str = "") -> list[Asked]:
    """Random requests of so many rows each; `model`: another name under which the server has it."""
    rng = np.random.default_rng(seed)
    drawn = [case.draw(rng, each) for each in rows]
    return [Asked(model or case.name, inputs, direct(case.name, inputs)) for inputs in drawn]
