"""What the batcher was given, and what a device works on.

Rows of many requests into one call of a model, and back. Pure; runs on a device thread.

One bad request fails alone: a batch rejected for its input's sake is halved until the
guilty one stands alone; so is one that the device had no memory for. Any other failure
fails the whole batch once, without a retry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from app.batching.function import BatchFunction, Run
from app.batching.queue import Lane
from app.batching.request import PendingRequest
from app.batching.shapes.padding import ShapePadding, Shapes
from app.batching.shapes.ragged import RaggedRows
from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory, ServingError
from app.core.inference import STRING, Array
from app.core.reply import Outcome, Outputs


class BatchInFlight:
    """Requests of one lane that are executed together, with guests of others, and why their batch was closed."""

    __slots__ = ("_guests", "costs", "function", "key", "lanes", "reason", "requests", "rows")

    def __init__(self, lane: Lane, requests: list[PendingRequest], reason: str) -> None:
        self.key = lane.key
        self.lanes = [lane.key]
        self.function = lane.function
        self.costs = lane.costs
        self.requests = requests
        self.reason = reason
        self.rows = sum([request.rows for request in requests])
        self._guests: tuple[tuple[BatchFunction, int, int], ...] = ()

    def add(self, lane: Lane, guests: Sequence[PendingRequest]) -> None:
        """Requests of another lane, whose function counts them."""
        rows = sum([request.rows for request in guests])
        self._guests += ((lane.function, len(guests), rows),)
        self.lanes.append(lane.key)
        self.requests += guests
        self.rows += rows

    @property
    def expected_s(self) -> float:
        """How long its call will take, as far as known."""
        curve = self.costs.curve
        return curve.call_s(self.rows) if curve is not None else 0.0

    @property
    def answered(self) -> bool:
        """Does nobody in it wait for an answer any more?"""
        return all(request.reply.done() for request in self.requests)

    def took(self, seconds: float) -> None:
        """All its requests succeeded, in that time. With guests, which may be longer, that says little of its lane."""
        if self._guests:
            return
        if self.function.batchable:
            self.costs.note(self.function.sizes.padded(self.rows), seconds)
        else:
            self.costs.note(1, seconds / len(self.requests))

    def fail(self, text: str) -> None:
        """It was not executed."""
        for request in self.requests:
            request.fail(InferenceFailed(text))
        self.left()

    def left(self) -> None:
        """Its requests are answered."""
        requests, rows = len(self.requests), self.rows
        for function, guests, guest_rows in self._guests:
            function.leave(guests, guest_rows)
            requests -= guests
            rows -= guest_rows
        self.function.leave(requests, rows)


logger = logging.getLogger(__name__)


class Execution(NamedTuple):
    """An outcome for each request of a batch, in order, when it began and ended, and what was computed for nobody:
    how many rows, and which share of all elements of the inputs."""

    outcomes: list[Outcome]
    started_s: float
    ended_s: float
    padded_rows: int
    waste: float


class RowCountMismatch(InferenceFailed):
    """An output has not one row for each input row, so callers cannot be told apart in it."""


def timed_execution(
    function: BatchFunction, requests: Sequence[PendingRequest], clock: Callable[[], float], replica: int = 0
) -> Execution:
    """`execute`, and how long it took."""
    started_s = clock()
    outcomes = execute(function, requests, replica)
    ended_s = clock()
    nobodys_rows = padded_rows(function, requests)
    return Execution(outcomes, started_s, ended_s, nobodys_rows, waste(function, requests, nobodys_rows))


def execute(function: BatchFunction, requests: Sequence[PendingRequest], replica: int = 0) -> list[Outcome]:
    """Runs the requests together and gives each its own rows or its own error, in their order. Never raises."""
    try:
        return list(run_together(function, requests, replica))
    except RowCountMismatch as uneven:
        function.batchable = False
        if function.padding is not None:
            function.padding.enabled = False
            logger.warning("Padding did not go as it did at warm-up, only equal shapes share a call: %s", uneven)
        else:
            logger.warning("The outputs do not follow the rows of the inputs: requests run one by one from now on")
        return [outcome for request in requests for outcome in execute(function, [request], replica)]
    except (InvalidRequest, OutOfMemory) as error:
        if len(requests) == 1:
            return [error]
        middle = len(requests) // 2
        return execute(function, requests[:middle], replica) + execute(function, requests[middle:], replica)
    except ServingError as error:
        return [type(error)(*error.args) for _ in requests]
    except Exception:
        logger.exception("A batch failed in a way that no runtime reported")
        return [InferenceFailed("The model failed") for _ in requests]


def run_together(function: BatchFunction, requests: Sequence[PendingRequest], replica: int = 0) -> Sequence[Outputs]:
    """One call for all. Raises what the model raises, and RowCountMismatch."""
    run = function.on(replica)
    if not function.batchable:
        return [run(request.inputs) for request in requests]
    request_rows = [request.rows for request in requests]
    own_rows = sum(request_rows)
    rows = function.sizes.padded(own_rows)
    if function.padding is not None:
        sent = [request.inputs for request in requests]
        shape = function.padding.call_shape(sent, rows)
        if any(function.padding.shape(inputs) != shape for inputs in sent):
            return _run_padded(run, function, function.padding, sent, request_rows, rows, shape)
    if not rows:
        return [_run_without_rows(run, function, requests[0].inputs)] * len(requests)
    if function.ragged is not None:
        inputs = function.ragged.join([request.inputs for request in requests], own_rows, rows)
    else:
        inputs = assemble(requests, own_rows, rows)
    outputs = run(inputs)
    if function.ragged_outputs is not None:
        return _split_ragged(function.ragged_outputs, outputs, request_rows, rows)
    return split(outputs, request_rows, rows)


def _run_padded(  # noqa: PLR0917 - the parts of one call
    run: Run,
    function: BatchFunction,
    padding: ShapePadding,
    sent: Sequence[Mapping[str, Array]],
    request_rows: Sequence[int],
    rows: int,
    shape: Shapes,
) -> Sequence[Outputs]:
    """One call of inner shape `shape` for requests of others."""
    if not rows:
        return [_run_without_rows(run, function, inputs) for inputs in sent]
    inputs = padding.join(sent, rows, shape)
    outputs = run(inputs)
    own = split(outputs, request_rows, rows)
    if misfit := padding.misfit(outputs, inputs):
        raise RowCountMismatch(misfit)
    return [padding.cut(each, inputs) for each, inputs in zip(own, sent, strict=True)]


def _run_without_rows(run: Run, function: BatchFunction, inputs: Mapping[str, Array]) -> Outputs:
    """What the model gives for no rows; where it rejects none (convolutions do), a blank row's outputs, cut off."""
    try:
        return run(inputs)
    except InvalidRequest as rejection:
        try:
            outputs = run({name: _blank_row(array) for name, array in inputs.items()})
        except InvalidRequest:
            raise rejection from None
        ragged = function.ragged_outputs
        return ragged.part(outputs, 0, 0) if ragged else {name: output[:0] for name, output in outputs.items()}


def _blank_row(array: Array) -> Array:
    return np.full((1, *array.shape[1:]), b"" if array.dtype == STRING else 0, array.dtype)


def padded_rows(function: BatchFunction, requests: Sequence[PendingRequest]) -> int:
    """How many rows of the call were nobody's."""
    if not function.batchable:
        return 0
    rows = sum([request.rows for request in requests])
    return function.sizes.padded(rows) - rows


def waste(function: BatchFunction, requests: Sequence[PendingRequest], nobodys_rows: int) -> float:
    """Which share of the elements of the call's inputs was padding, of rows and of inner shapes."""
    rows = sum([request.rows for request in requests]) + nobodys_rows
    if not (function.batchable and rows):
        return 0.0
    padding = function.padding
    if padding is None or (len(requests) == 1 and not padding.compiled):
        return nobodys_rows / rows
    sent = [request.inputs for request in requests]
    own = sum([inputs[name].size for inputs in sent for name in padding.inputs])
    computed = rows * sum(map(prod, padding.call_shape(sent, rows)))
    return 1 - own / computed if computed else 0.0


def assemble(requests: Sequence[PendingRequest], own_rows: int, rows: int) -> dict[str, Array]:
    """The inputs of requests with `own_rows` in all, stacked and padded to `rows`.

    A lone request of that size is passed on uncopied.
    """
    first = requests[0]
    if len(requests) == 1 and first.rows == rows:
        return dict(first.inputs)
    return {name: _stack([request.inputs[name] for request in requests], own_rows, rows) for name in first.inputs}


def _stack(parts: Sequence[Array], own_rows: int, rows: int) -> Array:
    if own_rows == rows:
        return np.concatenate(parts)
    stacked = np.empty((rows, *parts[0].shape[1:]), parts[0].dtype)
    np.concatenate(parts, out=stacked[:own_rows])
    stacked[own_rows:] = stacked[:1]  # padding repeats a real row: values that the model is made for
    return stacked


def split(outputs: Outputs, request_rows: Sequence[int], rows: int) -> list[Outputs]:
    """Each request's own rows of each output, padding cut off. Raises RowCountMismatch."""
    for name, output in outputs.items():
        if output.ndim == 0 or len(output) != rows:
            raise RowCountMismatch(f"Output {name!r} has shape {output.shape} for a batch of {rows} rows")
    if len(request_rows) == 1 and request_rows[0] == rows:
        return [outputs]
    answers: list[Outputs] = [{} for _ in request_rows]
    for name, output in outputs.items():
        for answer, own_rows in zip(answers, _parts(output, request_rows), strict=True):
            answer[name] = own_rows
    return answers


def _split_ragged(ragged: RaggedRows, outputs: Outputs, request_rows: Sequence[int], rows: int) -> list[Outputs]:
    """The same where rows have lengths of their own."""
    if misfit := ragged.misfit(outputs, rows):
        raise RowCountMismatch(f"Output {misfit}")
    return [ragged.part(outputs, start, end) for start, end in pairwise(accumulate(request_rows, initial=0))]


def _parts(output: Array, request_rows: Sequence[int]) -> Iterable[Array]:
    if request_rows.count(1) == len(request_rows):
        parts: Iterable[Array] = output[: len(request_rows), np.newaxis]  # numpy is quicker to iterate than to slice
        return parts
    return [output[start:end] for start, end in pairwise(accumulate(request_rows, initial=0))]
