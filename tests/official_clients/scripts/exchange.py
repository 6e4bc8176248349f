"""What the tests and the scripts in the clients' environment tell each other: JSON in which arrays keep every bit.

Both sides import this file; it needs nothing but numpy and ml_dtypes.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

_CASES: list[Callable[..., Any]] = []


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks what a script does with the server; what the function returns is the answer of that name."""
    _CASES.append(function)
    return function


def main() -> None:
    """Runs every case on the question of the first argument; writes all answers, or what was raised, to the second."""
    question = from_json(json.loads(Path(sys.argv[1]).read_text()))
    answers = {function.__name__: _run(function, question) for function in _CASES}
    Path(sys.argv[2]).write_text(json.dumps(answers))


def _run(function: Callable[..., Any], question: Any) -> dict[str, Any]:
    try:
        answer = function(question)
        return {"answer": to_json(asyncio.run(answer) if inspect.iscoroutine(answer) else answer)}
    except Exception:
        return {"raised": traceback.format_exc()}


def to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        elements = [_text(one) for one in value.reshape(-1)] if value.dtype.hasobject else _text(value.tobytes())
        return {"dtype": value.dtype.name, "shape": list(value.shape), "elements": elements}
    if isinstance(value, dict):
        return {name: to_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    return value


def from_json(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "elements"}:
        return _array(**value)
    if isinstance(value, dict):
        return {name: from_json(one) for name, one in value.items()}
    return [from_json(one) for one in value] if isinstance(value, list) else value


def _array(dtype: str, shape: list[int], elements: Any) -> np.ndarray[Any, Any]:
    if dtype == "object":
        array = np.empty(shape, object)
        array.reshape(-1)[:] = [base64.b64decode(one) for one in elements]
        return array
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return np.frombuffer(base64.b64decode(elements), kind).reshape(shape)


def _text(value: bytes | str) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
