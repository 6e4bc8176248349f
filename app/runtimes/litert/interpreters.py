"""LiteRT's interpreters of one model, and the calls that they make. The only file that imports LiteRT.

Rules
- An interpreter makes one call at a time; `Interpreters` makes up to `most`, each when it is first needed.
- A resize keeps the memory of the largest shape, so an interpreter takes any order of shapes at little cost.
- An interpreter that raised is dropped: it keeps the text of its errors, and adds it to the next one. One with state
  stays.
- LiteRT lets other threads run while it computes, not while it lays out tensors: 13 ms for a file of 6 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition
from typing import Any

import numpy as np

from app.core.errors import InferenceFailed, ServingError
from app.core.inference import STRING, Array
from app.runtimes.litert.error_mapping import call_error
from app.runtimes.litert.tflite_signatures import TFLiteFunction

#: Makes the array of an empty scalar string: numpy gives all others at least one byte.
_EMPTY_STRING: Array = np.zeros((), [("empty", "S0"), ("full", "i1")])["empty"]


def make_interpreter(content: bytes, threads: int) -> Any:
    """A new interpreter. Raises ImportError, and LiteRT's errors for a file that it cannot execute."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - only where such a model is loaded

    return Interpreter(model_content=content, num_threads=threads)


class InterpreterCalls:
    """An interpreter, and its calls. One call at a time.

    Args:
        forgets: variables are reset after each call.
    """

    def __init__(self, interpreter: Any, *, forgets: bool) -> None:
        self._interpreter = interpreter
        self._forgets = forgets
        self._runners: dict[str, Any] = {}

    def call(self, function: TFLiteFunction, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs of one call. Raises LiteRT's errors."""
        sent = {name: _as_litert_takes_it(inputs[name]) for name in function.inputs}
        found = self._by_signature(function.key, sent) if function.key is not None else self._by_tensor(function, sent)
        if self._forgets:  # an interpreter without memory yet has nothing to reset, so this comes behind the call
            self._interpreter.reset_all_variables()
        return {name: np.asarray(found[name]) for name in function.outputs}

    def _by_signature(self, key: str, inputs: Mapping[str, Array]) -> Mapping[str, Any]:
        runner = self._runners.get(key)
        if runner is None:
            runner = self._runners[key] = self._interpreter.get_signature_runner(key)
        found: Mapping[str, Any] = runner(**inputs)
        return found

    def _by_tensor(self, function: TFLiteFunction, inputs: Mapping[str, Array]) -> Mapping[str, Any]:
        interpreter = self._interpreter
        for name, array in inputs.items():
            interpreter.resize_tensor_input(function.inputs[name], array.shape)
        interpreter.allocate_tensors()
        for name, array in inputs.items():
            interpreter.set_tensor(function.inputs[name], array)
        interpreter.invoke()
        return {name: interpreter.get_tensor(tensor) for name, tensor in function.outputs.items()}


def _as_litert_takes_it(array: Array) -> Array:
    """The array in one piece; a scalar string as numpy's strings, since LiteRT would read the address of an object."""
    if array.dtype == STRING and not array.ndim:
        return np.array(array.item()) if array.item() else _EMPTY_STRING
    return np.require(array, requirements="C")


class Interpreters:
    """The interpreters of one model; `call` may be called from any thread, and waits for a free one.

    Args:
        first: one that exists.
        make: makes a further one.
        most: how many there may be.
        keeps: an interpreter that raised stays, as it has state.
    """

    def __init__(
        self, first: InterpreterCalls, make: Callable[[], InterpreterCalls], most: int, *, keeps: bool
    ) -> None:
        self._make = make
        self._keeps = keeps
        self._idle = [first]
        self._may_make = most - 1
        self._changed = Condition()
        self._closed = False

    def call(self, function: TFLiteFunction, calls: Iterable[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """The outputs of some calls, one behind the other, on one interpreter.

        Raises:
            InvalidRequest, OutOfMemory: LiteRT refused these inputs.
            InferenceFailed: the model is closed.
        """
        try:
            with self._one() as interpreter:
                return [interpreter.call(function, inputs) for inputs in calls]
        except ServingError:
            raise
        except Exception as error:
            raise call_error(error) from error

    def close(self) -> None:
        """Let go of all interpreters; those that make a call, at its end."""
        with self._changed:
            self._closed = True
            self._idle.clear()
            self._changed.notify_all()

    @contextmanager
    def _one(self) -> Iterator[InterpreterCalls]:
        interpreter = self._take()
        works = self._keeps
        try:
            yield interpreter
            works = True
        finally:
            with self._changed:
                if self._closed:
                    pass
                elif works:
                    self._idle.append(interpreter)
                else:
                    self._may_make += 1
                self._changed.notify()

    def _take(self) -> InterpreterCalls:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._idle or self._may_make)
            if self._closed:
                raise InferenceFailed("the model is closed")
            if self._idle:
                return self._idle.pop()
            self._may_make -= 1
        try:
            return self._make()
        except BaseException:
            with self._changed:
                self._may_make += 1
                self._changed.notify()
            raise
