"""A TFLite model in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod

import numpy as np

from app.core.errors import InferenceFailed, InvalidRequest
from app.core.inference import Array, ModelSignature, dtype_name, has_rows
from app.runtimes.call_names import check_names, no_function
from app.runtimes.litert.interpreters import Interpreters
from app.runtimes.litert.tflite_signatures import TFLiteFunction, TFLiteFunctions


class LiteRTModel:
    """The PlainModel of one `model.tflite`.

    Args:
        ran: the names of the signatures that a call with zeros answered; only these may blame a request.
    """

    def __init__(self, functions: TFLiteFunctions, interpreters: Interpreters, ran: Collection[str]) -> None:
        self.signatures: Mapping[str, ModelSignature] = functions.signatures
        self._functions = functions
        self._interpreters = interpreters
        self._ran = set(ran)
        self._closed = False

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        function = self._functions.by_name.get(signature)
        if function is None or self._closed:
            raise no_function(signature, self.signatures, closed=self._closed)
        check_names(function.signature, inputs, outputs)
        _check_arrays(function.signature, inputs)
        found = self._run(function, inputs)
        return {name: found[name] for name in outputs or function.signature.outputs}

    def close(self) -> None:
        self._closed = True
        self._interpreters.close()

    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        return self.run(signature, inputs, outputs)

    def stop_variants(self, signature: str) -> None:
        """Does nothing: there are no variants."""

    def _run(self, function: TFLiteFunction, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if any(not array.size for array in inputs.values()):
            return self._answer_to_nothing(function, inputs)
        repeats = function.signature.draws or self._functions.is_stateful
        rows = _Rows(inputs, skip_repeated=not repeats) if function.by_row else None
        try:
            answers = self._interpreters.call(function, rows or [inputs])
        except InvalidRequest as error:
            if function.signature.name not in self._ran:
                raise InferenceFailed(str(error)) from error
            raise
        self._ran.add(function.signature.name)
        return answers[0] if rows is None or rows.count == 1 else _joined(answers, rows)

    def _answer_to_nothing(self, function: TFLiteFunction, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The answer to no rows: that to a row of zeros, without this row. LiteRT fails, or worse, for empty tensors.

        Raises InvalidRequest: the inputs are empty in another way, or a call would change the model's state.
        """
        shapes = {name: (1, *array.shape[1:]) for name, array in inputs.items()}
        has_no_rows = function.signature.all_rows and not any(map(len, inputs.values()))
        if not has_no_rows or self._functions.is_stateful or not all(map(prod, shapes.values())):
            raise InvalidRequest("LiteRT takes no inputs without elements")
        return {name: array[:0] for name, array in self._run(function, _zeros(function.signature, shapes)).items()}


class _Rows:
    """The rows of a request, each as the inputs of a call.

    Batches are padded with copies of a row: a row that equals the one before it is not computed again.

    Attributes:
        computed: for each row, the number of the call that answers it.
    """

    def __init__(self, inputs: Mapping[str, Array], *, skip_repeated: bool) -> None:
        counts = {name: len(array) for name, array in inputs.items()}
        if len(set(counts.values())) > 1:
            raise InvalidRequest(f"inputs must have equally many rows, not {counts}")
        self.count = next(iter(counts.values()))
        self.computed: list[int] = []
        self._inputs = inputs
        self._skip_repeated = skip_repeated

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        self.computed = []
        for row in range(self.count):
            if self._skip_repeated and row and self._equals_last(row):
                self.computed.append(self.computed[-1])
                continue
            self.computed.append(self.computed[-1] + 1 if row else 0)
            yield {name: array[row : row + 1] for name, array in self._inputs.items()}

    def _equals_last(self, row: int) -> bool:
        """Whether all values of a row are, bit by bit, those of the row before."""
        return all(_same(array[row], array[row - 1]) for array in self._inputs.values())


def _same(row: Array, other: Array) -> bool:
    if row.dtype.hasobject:
        return bool(np.array_equal(row, other))
    return row.tobytes() == other.tobytes()


def _joined(answers: list[dict[str, Array]], rows: _Rows) -> dict[str, Array]:
    """The answers of all rows, one behind the other. Raises InvalidRequest: a row's answer is no row."""
    for answer in answers:
        for name, array in answer.items():
            if not array.ndim or len(array) != 1:
                raise InvalidRequest(f"output {name!r} has the shape {list(array.shape)} for a row, so send rows alone")
    return {name: np.concatenate([answers[call][name] for call in rows.computed]) for name in answers[0]}


def _check_arrays(signature: ModelSignature, inputs: Mapping[str, Array]) -> None:
    """Raises InvalidRequest unless types and shapes fit: LiteRT is never told shapes that are not those of the file."""
    for name, array in inputs.items():
        spec = signature.inputs[name]
        if array.dtype != spec.dtype:
            raise InvalidRequest(f"input {name!r} has dtype {dtype_name(array.dtype)}; expected {spec}")
        if not spec.accepts_shape(array.shape):
            raise InvalidRequest(f"input {name!r} has shape {list(array.shape)}; expected {spec}")


def zeros_of(signature: ModelSignature, rows: int) -> dict[str, Array]:
    """Zeros for a call: `rows` rows where their number is free, 1 for each other free dimension."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, spec in signature.inputs.items():
        first = [rows if has_rows(spec.shape) else size or 0 for size in (spec.shape or ())[:1]]
        shapes[name] = (*first, *[1 if size is None else size for size in (spec.shape or ())[1:]])
    return _zeros(signature, shapes)


def _zeros(signature: ModelSignature, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Zeros, or empty strings, of these shapes."""
    kinds = {name: signature.inputs[name].dtype for name in shapes}
    return {name: np.full(shape, b"" if kinds[name].hasobject else 0, kinds[name]) for name, shape in shapes.items()}
