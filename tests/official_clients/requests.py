"""Requests that every protocol must answer with the same bits, and the answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from app.core.inference import Array
from tests.official_clients.savedmodels import V2_DTYPES
from tests.support.processes import ROOT
from tests.support.savedmodels import DTYPES

FLOATS = ("half", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Request:
    """`outputs` is what the model must answer; an output that is None is whatever the first protocol answers."""

    model: str
    inputs: dict[str, Array]
    outputs: dict[str, Array | None]

    @property
    def asked(self) -> dict[str, Any]:
        return {"model": self.model, "inputs": self.inputs, "outputs": list(self.outputs)}


def dtype_of(name: str) -> np.dtype[Any]:
    named = {"string": object, "bfloat16": ml_dtypes.bfloat16, "half": np.float16}
    return np.dtype(named.get(name, name))


def limits(name: str) -> Array:
    """Six values of the type: its limits, and values that conversions tend to change."""
    if name == "string":
        return strings("", "a", "äß€😀", 'line\n"quoted"\\', "null\0byte", "x" * 300)
    if name == "bool":
        return np.array([True, False, False, True, True, False])
    dtype = dtype_of(name)
    if name.startswith("complex"):
        return np.array([0, 1j, -1.5, 1 + 2j, 0.1 - 0.1j, 3e38]).astype(dtype)
    if name in FLOATS:
        finite = ml_dtypes.finfo(dtype)
        return np.array([0.1, -0.0, 1 / 3, finite.smallest_subnormal, finite.max, finite.min], dtype)
    integer = np.iinfo(dtype)
    return np.array([integer.min, integer.max, 0, 1, 42, 100], dtype)


def not_finite(name: str) -> Array:
    return np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1], dtype_of(name)) if name in FLOATS else limits(name)


def strings(*values: str | bytes) -> Array:
    array = np.empty(len(values), object)
    array[:] = [value if isinstance(value, bytes) else value.encode() for value in values]
    return array


def echo(model: str, inputs: dict[str, Array]) -> Request:
    return Request(model, inputs, {f"{name}_out": array for name, array in inputs.items()})


def echo_of_every_type() -> dict[str, Request]:
    in_json = [name for name in V2_DTYPES if name not in ("half", "bfloat16")]
    every = {name: limits(name) for name in V2_DTYPES}
    return {
        "every type": echo("v2_dtypes", {name: array.reshape(3, 2) for name, array in every.items()}),
        "no rows of every type": echo("v2_dtypes", {name: array[:0].reshape(0, 2) for name, array in every.items()}),
        "a scalar of every type": echo("v2_scalars", {name: array[1:2].reshape(()) for name, array in every.items()}),
        "every type in JSON": echo("json_dtypes", {name: every[name].reshape(2, 3) for name in in_json}),
        "not finite": echo("json_dtypes", {name: not_finite(name).reshape(6, 1) for name in in_json}),
        "no rows in JSON": echo("json_dtypes", {name: every[name][:0].reshape(0, 2) for name in in_json}),
    }


def calculations() -> dict[str, Request]:
    a, b = np.array([[1, 2], [3, 4.5]], np.float32), np.array([[0.1, -7], [1e-3, 7e37]], np.float32)
    matrix = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    x = np.array([1, 5, 0.1], np.float32)
    samples = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"]
    images = np.array([sample["image"] for sample in samples[:5]], np.float32)
    tokens = np.array([[116, 102, 109, 103, 47], [126, 33, 0, 0, 0]], np.int32)
    greeting = {"greeting": strings("hello Ada").reshape(()), "double": np.array(-3, np.float32)}
    return {
        "several inputs": Request("several_inputs", {"a": a, "b": b}, {"sum": a + b, "product": a * b}),
        "no rows of several inputs": Request(
            "several_inputs", {"a": a[:0], "b": b[:0]}, {"sum": a[:0], "product": a[:0]}
        ),
        "scalars": Request("scalar", {"a": np.array(-1.5, np.float32), "name": strings("Ada").reshape(())}, greeting),
        "unknown dimensions": Request(
            "unknown_inner", {"matrix": matrix}, {"total": matrix.sum((1, 2)), "doubled": 2 * matrix}
        ),
        "one input": Request("half_plus_two", {"x": x}, {"y": x * np.float32(0.5) + 2}),
        "an empty list": Request("half_plus_two", {"x": x[:0]}, {"y": x[:0]}),
        "digits": Request("digits", {"image": images}, {"probabilities": None}),
        "text": Request("text", {"tokens": tokens}, {"probabilities": None, "token_scores": None}),
    }


REQUESTS = {**echo_of_every_type(), **calculations()}

#: For TensorFlow Serving's protocols only: the others have no complex numbers.
COMPLEX = {"complex": echo("every_dtype", {name: limits(name) for name in DTYPES})}
