"""TFLite files: taken as they are, as the `model.tflite` of a version, which LiteRT executes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import STRING, Array
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Endpoint, Source
from app.model_files import TFLITE_FILE
from app.runtimes.litert.tflite_file import TFLiteFileError, labels_of, read_tflite
from app.runtimes.litert.tflite_signatures import TFLiteFunction, functions_of

_MISSING = "it needs LiteRT, which is not installed: pip install 'ferry-serving[tflite]'"


def read(path: Path, order: ImportOrder) -> Source:  # noqa: ARG001 - a reader has one form
    """The model in a `.tflite` file. Raises CannotImport."""
    content = path.read_bytes()
    try:
        functions = functions_of(read_tflite(content), content)
        labels = labels_of(content)
    except TFLiteFileError as error:
        raise CannotImport(f"{path.name}: {error}") from None
    endpoints = [_endpoint(function, content, forgets=functions.forgets) for function in functions.by_name.values()]
    return Source("TFLite model", endpoints, files={TFLITE_FILE: path}, labels=labels)


def _endpoint(function: TFLiteFunction, content: bytes, *, forgets: bool) -> Endpoint:
    inputs = {
        name: tf.TensorSpec(spec.shape, tf.string if spec.dtype == STRING else spec.dtype, name)
        for name, spec in function.signature.inputs.items()
    }
    return Endpoint(inputs, dict, _Interpreter(function, content, forgets=forgets).run, function.signature.name)


class _Interpreter:
    """LiteRT itself, with an interpreter that is made at the first call: a broken file may end the process there.

    Args:
        forgets: variables are reset after each call, as a server does.
    """

    def __init__(self, function: TFLiteFunction, content: bytes, *, forgets: bool) -> None:
        self._function = function
        self._content = content
        self._forgets = forgets

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if not self._function.by_row:
            return self._call(inputs)
        rows = [self._call({k: v[row : row + 1] for k, v in inputs.items()}) for row in range(_rows(inputs))]
        return {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}

    def _call(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        function, interpreter = self._function, self._interpreter
        for name, array in inputs.items():
            interpreter.resize_tensor_input(function.inputs[name], array.shape)
        interpreter.allocate_tensors()
        for name, array in inputs.items():
            interpreter.set_tensor(function.inputs[name], array)
        interpreter.invoke()
        answers = {name: np.array(interpreter.get_tensor(tensor)) for name, tensor in function.outputs.items()}
        if self._forgets:
            interpreter.reset_all_variables()
        return answers

    @cached_property
    def _interpreter(self) -> Any:
        try:
            from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - an extra
        except ImportError:
            raise CannotImport(_MISSING) from None
        return Interpreter(model_content=self._content, num_threads=1)


def _rows(inputs: Mapping[str, Array]) -> int:
    return max(map(len, inputs.values()))
