"""LiteRT as a runtime: on the CPU, with threads as TensorFlow's. LiteRT itself is imported when a model is loaded."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from app.core.errors import FilesUnreadable
from app.core.inference import ModelSignature, TensorSpec
from app.model_files import TFLITE_FILE
from app.runtime import LoadedModel, RuntimeOptions
from app.runtimes.litert.crash_trial import try_in_child
from app.runtimes.litert.error_mapping import load_failure, why_not_loaded
from app.runtimes.litert.interpreters import InterpreterCalls, Interpreters, make_interpreter
from app.runtimes.litert.litert_model import LiteRTModel
from app.runtimes.litert.risky_operations import check_risks
from app.runtimes.litert.tflite_file import TFLiteFileError, labels_of, read_tflite
from app.runtimes.litert.tflite_signatures import TFLiteFunctions, functions_of
from app.runtimes.parallelism import share_cores, usable_cores

#: The package of LiteRT, and how to install it.
_PACKAGE, _HOW = "ai_edge_litert", "pip install 'ferry-serving[tflite]'"


class LiteRTRuntime:
    """The Runtime that executes `model.tflite`."""

    def __init__(self, options: RuntimeOptions) -> None:
        self.devices = ("CPU:0",)
        self.batches_in_flight, self._threads = share_cores(
            usable_cores(), options.batches_in_flight, options.intra_op_threads
        )
        self.parallel = self.batches_in_flight > 1
        self._allowed_operations = options.allowed_operations

    def load(self, path: Path) -> LoadedModel:
        content, functions = _read(path, self._allowed_operations)
        _check_installed(path)
        try:
            ran, fault = try_in_child(content, self._threads)
        except OSError as error:
            raise load_failure(path, f"no process can be started to try it in: {error.strerror}") from error
        if fault:
            raise load_failure(path, fault)
        make = partial(_make_calls, content, self._threads, forgets=functions.forgets)
        try:
            first = make()
        except Exception as error:
            raise load_failure(path, why_not_loaded(error)) from error
        # One for each batch in flight, and one for calls that measure: a request never waits for these, which may take
        # long, while the event loop makes its call. State is that of one interpreter.
        most = 1 if functions.is_stateful else self.batches_in_flight + 1
        return LiteRTModel(functions, Interpreters(first, make, most, keeps=functions.is_stateful), ran)


def start(options: RuntimeOptions) -> LiteRTRuntime:
    return LiteRTRuntime(options)


def read_offline(
    path: Path, allowed_operations: Collection[str] = (), *_: Collection[str]
) -> Mapping[str, ModelSignature]:
    """The signatures of the model in a folder; nothing of LiteRT runs. Raises as `Runtime.load`."""
    _check_installed(path)
    return _read(path, allowed_operations)[1].signatures


def _check_installed(path: Path) -> None:
    """Raises InferenceFailed, which says how to install it, where LiteRT is not installed."""
    is_hidden = _PACKAGE in sys.modules and sys.modules[_PACKAGE] is None
    if is_hidden or find_spec(_PACKAGE) is None:
        raise load_failure(path, f"{TFLITE_FILE} needs LiteRT, which is not installed: {_HOW}")


def _make_calls(content: bytes, threads: int, *, forgets: bool) -> InterpreterCalls:
    return InterpreterCalls(make_interpreter(content, threads), forgets=forgets)


def _read(path: Path, allowed_operations: Collection[str]) -> tuple[bytes, TFLiteFunctions]:
    """The file in a version's folder, and its functions."""
    try:
        content = (path / TFLITE_FILE).read_bytes()
    except FileNotFoundError:
        raise load_failure(path, f"there is no {TFLITE_FILE}") from None
    except OSError as error:
        raise FilesUnreadable(str(load_failure(path, f"{TFLITE_FILE}: {error.strerror}"))) from error
    try:
        file = read_tflite(content)
        check_risks(file, allowed_operations)
        return content, _with_labels(functions_of(file, content), content)
    except TFLiteFileError as error:
        raise load_failure(path, str(error)) from None


def _with_labels(functions: TFLiteFunctions, content: bytes) -> TFLiteFunctions:
    """The functions with the labels that the file holds, at each output whose last dimension counts them."""
    labels = labels_of(content)
    if not labels:
        return functions

    def classes(spec: TensorSpec) -> int | None:
        return spec.shape[-1] if spec.shape else None

    by_name = {
        name: replace(
            function,
            signature=replace(
                function.signature,
                labels={
                    each: labels for each, spec in function.signature.outputs.items() if classes(spec) == len(labels)
                },
            ),
        )
        for name, function in functions.by_name.items()
    }
    return replace(functions, by_name=by_name)
