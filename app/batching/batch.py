"""A batch: the rows of many requests in one call of a model, and back.

`execute` runs on a device thread or, inline, on the event loop. It reads the requests and their function and changes
neither: it returns its findings in an Execution, and the event loop acts on that.

One bad request fails alone. A batch has no outcomes if it is rejected because of its input, if there is no memory for
it, or if its outputs cannot be split; its requests are then run again in smaller groups (isolation.py). Any other
failure fails the requests of that call, without a retry. A function that is not batchable runs each request by itself,
once, unless its time is over or its caller has gone by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from itertools import accumulate, pairwise
from math import inf, prod
from typing import NamedTuple

import numpy as np

from app.batching.function import BatchFunction, Compared, Run, elements_of
from app.batching.large_requests import rejoin
from app.batching.proof.refused_call import Refusal, look_into
from app.batching.request import PendingRequest
from app.batching.shapes.ragged import RaggedRows
from app.batching.waiting.lane import Lane
from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest, OutOfMemory, ServingError
from app.core.inference import STRING, Array
from app.core.reply import Outcome, Outputs

logger = logging.getLogger(__name__)


class BatchInFlight:
    """A batch: requests of one lane that are executed together, and of lanes whose bucket was merged with its own.

    Attributes:
        lanes: the keys of all these lanes.
        reason: why the batch was closed; see BatchExecuted.
        since_s: the time since when the machine was free for it; its call begins later. Infinity if that is not known.
        calls_beside: the number of calls that share the machine while it is computed, itself included.
    """

    __slots__ = (
        "_elements", "_shares", "calls_beside", "costs", "function", "key", "lanes", "reason", "requests", "rows",
        "since_s",
    )  # fmt: skip

    def __init__(self, lane: Lane, requests: list[PendingRequest], reason: str) -> None:
        self.key = lane.key
        self.lanes = [lane.key]
        self.function = lane.function
        self.costs = lane.costs
        self.requests = requests
        self.reason = reason
        self.rows = sum([request.rows for request in requests])
        self._shares = [(lane.function, len(requests))]
        self._elements: int | None = None  # counted when it is asked for
        self.since_s = inf
        self.calls_beside = 1

    def merge(self, lane: Lane, requests: Sequence[PendingRequest]) -> None:
        """Adds requests of another lane, whose own function counts them."""
        self._shares.append((lane.function, len(requests)))
        self.lanes.append(lane.key)
        self.requests += requests
        self.rows += sum([request.rows for request in requests])

    def part(self, requests: Sequence[PendingRequest]) -> BatchInFlight:
        """Some of its requests as a batch of their own, which is run again."""
        part = copy(self)
        part.requests, part.reason, part._elements = list(requests), "retry", None
        part.rows = sum([request.rows for request in requests])
        part._shares = [(self.function, len(requests))]
        if len(self._shares) > 1:
            functions = [function for function, count in self._shares for _ in range(count)]
            function_of = dict(zip(self.requests, functions, strict=True))
            part._shares = [(function_of[request], 1) for request in requests]
        return part

    def take_apart(self) -> list[PendingRequest]:
        """Replaces coalesced requests by the requests that they stand for, and returns these."""
        apart: list[PendingRequest] = []
        if not any([request.coalesced_s for request in self.requests]):  # noqa: C419 - quicker
            return apart
        functions = [function for function, count in self._shares for _ in range(count)]
        requests, self.requests, self._shares = self.requests, [], []
        for function, request in zip(functions, requests, strict=True):
            replacing = request.apart() if request.coalesced_s else [request]
            if request.coalesced_s:
                apart += replacing
                function.requests_under_way += len(replacing) - 1
            self.requests += replacing
            self._shares.append((function, len(replacing)))
        return apart

    def make_whole(self, leave_lane: Callable[[PendingRequest], object]) -> None:
        """Replaces parts by their whole requests, since each is to be a call of its own; see `rejoin`."""
        self.requests = [rejoin(request, leave_lane) or request for request in self.requests]
        self.rows = sum([request.rows for request in self.requests])
        self._elements = None

    @property
    def expected_s(self) -> float:
        """The seconds that its call is expected to take; 0 if that is unknown."""
        curve = self.costs.curve
        return curve.call_s(self.rows) if curve is not None else 0.0

    @property
    def awaited(self) -> bool:
        """True while one of its requests waits: it was not answered, has not expired and was not cancelled."""
        return not all(request.reply.done() for request in self.requests)

    @property
    def feeds(self) -> bool:
        """Whether the answer to one of its requests, a step of a larger request, brings the next step."""
        return any([request.feeds for request in self.requests])  # noqa: C419 - quicker

    @property
    def is_group(self) -> bool:
        """Whether it is a part of a batch that was rejected."""
        return self.reason == "retry"

    @property
    def call_rows(self) -> int:
        """The rows of its call, padding included; 1 if requests run alone."""
        return self.function.sizes.padded(self.rows) if self.function.batchable else 1

    @property
    def elements(self) -> int:
        """The elements of its call, if shape and rows do not tell the work; see `elements_of`."""
        if self._elements is None:
            self._elements = elements_of(self.function, self.requests)
        return self._elements

    def is_quick(self, limit_s: float) -> bool:
        """Whether its call is known to take less than `limit_s`; a call of unknown cost is not quick."""
        return (
            self.function.steady
            and not self.function.devices
            and self.costs.is_quick(self.call_rows, limit_s, self.elements)
        )

    def record_latency(
        self, seconds: float, max_inline_s: float, ended_s: float = -inf, *, succeeded: bool = True
    ) -> None:
        """Learns from the time of its call; the time of a batch whose requests failed is no cost of its size.

        Requests of other lanes may be longer, so the time of a merged batch says little of its own lane.

        Args:
            ended_s: when its call ended, by the clock of `since_s`.
        """
        rows, function, costs = self.call_rows, self.function, self.costs
        call_s = seconds if function.batchable else seconds / len(self.requests)
        function.record_costs(self.key.shape, costs)
        if succeeded and rows > function.row_limit.accepted_rows:
            function.row_limit.accepted_rows = rows
        if call_s < max_inline_s or costs.is_quick(rows, max_inline_s):  # counting its elements takes time
            costs.record_undisturbed(rows, call_s, self.elements, succeeded=succeeded)
        if succeeded and len(self.lanes) == 1:
            costs.record_call(rows, call_s, self._taken_s(call_s, ended_s), self.calls_beside)

    def _taken_s(self, call_s: float, ended_s: float) -> float:
        """The seconds that its call took of the machine; 0 if they tell nothing of its size.

        The time before a call of steps is not counted: it made their requests. Calls of folds take up to twice as long
        where others of another size come before them (measured on trees of 128 wide cells), so tries tell nothing.
        """
        if not self.function.batchable or any([request.supplied for request in self.requests]):  # noqa: C419 - quicker
            return 0.0
        return call_s if self.feeds else max(call_s, ended_s - self.since_s)

    def fail(self, text: str) -> None:
        """Answers all its requests with an InferenceFailed: it was not executed."""
        for request in self.requests:
            request.fail(InferenceFailed(text))
        self.leave()

    def leave(self) -> None:
        """Makes the batch's functions stop counting its requests. A second call has no effect."""
        shares, self._shares = self._shares, []
        for function, requests in shares:
            function.leave(requests)

    def __repr__(self) -> str:
        merged = f", {len(self.lanes)} lanes" if len(self.lanes) > 1 else ""
        return f"<BatchInFlight {self.key}: {self.rows} rows of {len(self.requests)} requests{merged}, {self.reason}>"


class Execution(NamedTuple):
    """The result of running a batch.

    Attributes:
        outcomes: the outcome of each request; empty if there is a rejection.
        started_s, ended_s: monotonic seconds.
        padded_rows: rows added to reach a batch size.
        padding_ratio: share of the elements of the call's inputs that were padding, of rows and of inner shapes.
        rejection: why the requests have to be run again in smaller groups; there are no outcomes then.
        input_s, output_s: the seconds of this time in which the inputs were joined, and the outputs split.
        shared: false if each request was a call of its own.
        compared: the result of comparing its answers before they are given; None if they were not compared.
        refusal: the reason that was found for a rejected call, which tells nothing of the cost of its size; else None.
    """

    outcomes: list[Outcome]
    started_s: float
    ended_s: float
    padded_rows: int
    padding_ratio: float
    rejection: ServingError | None = None
    input_s: float = 0.0
    output_s: float = 0.0
    shared: bool = True
    refusal: Refusal | None = None
    compared: Compared | None = None

    @property
    def succeeded(self) -> bool:
        failed = any([isinstance(each, ServingError) for each in self.outcomes])  # noqa: C419 - quicker
        return self.rejection is None and self.refusal is None and not failed


class RowCountMismatch(InferenceFailed):
    """An output does not have one row for each input row, so it cannot be split by request."""


class PaddingMismatch(RowCountMismatch):
    """An output has a row for each input row, but its rows cannot be cut to what they would be without padding."""


def execute(
    function: BatchFunction, requests: Sequence[PendingRequest], clock: Callable[[], float], replica: int = 0
) -> Execution:
    """Runs the requests together and gives each its own rows or its own error. Never raises."""
    if not function.batchable:
        started_s = clock()
        return Execution(_run_each(function, requests, clock, replica), started_s, clock(), 0, 0.0, shared=False)
    run = _TimedRun(function.on(replica), clock)
    outcomes, rejection, refusal = _run_together(function, requests, run)
    ended_s = clock()
    compared = None
    if function.first is not None and rejection is None and refusal is None:
        compared = function.first.compare(function, requests, outcomes)
        if compared is not None and compared.differing:  # no answer of the call is given
            rejection = InferenceFailed(f"a request got another answer than alone, because of {compared.differing}")
    if rejection is not None:
        return Execution([], run.made_s, ended_s, 0, 0.0, rejection, refusal=refusal, compared=compared)
    padded_rows, padding_ratio = padding_of(function, requests)
    input_s, output_s = run.began_s - run.made_s, ended_s - run.ended_s
    return Execution(
        *(outcomes, run.made_s, ended_s, padded_rows, padding_ratio, None, input_s, output_s),
        refusal=refusal,
        compared=compared,
    )


class _TimedRun:
    """A call of the model that notes its times (clock seconds): the last one took from `began_s` to `ended_s`."""

    __slots__ = ("_clock", "_run", "began_s", "ended_s", "made_s")

    def __init__(self, run: Run, clock: Callable[[], float]) -> None:
        self._run = run
        self._clock = clock
        self.made_s = self.began_s = self.ended_s = clock()

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.began_s = self._clock()
        try:
            return self._run(inputs)
        finally:
            self.ended_s = self._clock()


def _run_each(
    function: BatchFunction, requests: Sequence[PendingRequest], clock: Callable[[], float], replica: int
) -> list[Outcome]:
    """Runs each request alone, once, whatever the other outcomes; requests that left meanwhile are not run."""
    run, outcomes = function.on(replica), list[Outcome]()
    for request in requests:
        if request.reply.done() or request.deadline_s <= clock():
            outcomes.append(DeadlineExceeded("The request's time ran out before its call began"))
            continue
        try:
            outcomes.append(run(request.inputs))
        except Exception as raised:
            outcomes.append(_serving_error(raised))
    return outcomes


def _run_together(
    function: BatchFunction, requests: Sequence[PendingRequest], run: Run
) -> tuple[list[Outcome], ServingError | None, Refusal | None]:
    """Outcomes, rejection and refusal; see Execution."""
    try:
        return list(run_together(function, requests, run)), None, None
    except Exception as raised:
        error = _serving_error(raised)
    # 1. A request alone that was computed in other calls than the rejected one.
    refusal = look_into(function, requests, run) if isinstance(error, InvalidRequest) else None
    if refusal is not None and refusal.outcome is not None:
        return [refusal.outcome], None, refusal
    # 2. The outputs cannot be split, one of several requests is invalid, or the batch is too large.
    several = len(requests) > 1 or bool(requests[0].coalesced_s)
    isolated = several and isinstance(error, InvalidRequest | OutOfMemory)
    if isolated or isinstance(error, RowCountMismatch):
        return [], error, refusal
    # 3. A request alone, or the model failed: each request gets an error of its own.
    return [copy(error) for _ in requests], None, refusal


def _serving_error(raised: Exception) -> ServingError:
    """The error of the requests, without the frames that it passed: those would keep the tensors of the batch."""
    if isinstance(raised, ServingError):
        raised.__cause__ = raised.__context__ = None
        return raised.with_traceback(None)
    if isinstance(raised, MemoryError):
        return OutOfMemory("There was not enough memory for the batch")
    logger.error("A batch failed in a way that no runtime reported", exc_info=raised)
    return InferenceFailed("The model failed")


def run_together(
    function: BatchFunction, requests: Sequence[PendingRequest], run: Run | None = None
) -> Sequence[Outputs]:
    """The outputs of each request, by one call for all of them: of `run`, or of the function on its first device.

    Raises:
        RowCountMismatch: the outputs cannot be split by request.
        ServingError: whatever the model raises.
    """
    run = run or function.on(0)
    request_rows = [request.rows for request in requests]
    own_rows = sum(request_rows)
    rows = function.sizes.padded(own_rows)

    # 1. Different inner shapes: pad.
    padding = function.padding
    if padding is not None:
        sent = [request.inputs for request in requests]
        shape = padding.call_shape(sent, rows)
        if any(padding.shape(inputs) != shape for inputs in sent):
            if not rows:
                return [_run_without_rows(run, function, inputs) for inputs in sent]
            inputs = padding.join(sent, rows, shape)
            outputs = run(inputs)
            unpadded = split(outputs, request_rows, rows)
            if misfit := padding.misfit(outputs, inputs):
                raise PaddingMismatch(misfit)
            return [padding.cut(each, inputs) for each, inputs in zip(unpadded, sent, strict=True)]

    # 2. No rows at all.
    if not rows:
        return [_run_without_rows(run, function, requests[0].inputs)] * len(requests)

    # 3. Equal inner shapes, or ragged rows.
    if function.ragged is not None:
        inputs = function.ragged.join([request.inputs for request in requests], own_rows, rows)
    else:
        inputs = assemble(requests, own_rows, rows)
    outputs = run(inputs)
    if function.ragged_outputs is not None:
        return _split_ragged(function.ragged_outputs, outputs, request_rows, rows)
    return split(outputs, request_rows, rows)


def _run_without_rows(run: Run, function: BatchFunction, inputs: Mapping[str, Array]) -> Outputs:
    """The outputs for no rows. If the model rejects that (convolutions do): those of a blank row, which is cut off."""
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


def padding_of(function: BatchFunction, requests: Sequence[PendingRequest]) -> tuple[int, float]:
    """The rows that a call adds, and the share of its inputs' elements that is padding, of rows and of inner shapes."""
    own_rows = sum([request.rows for request in requests])
    if not (function.batchable and own_rows):
        return 0, 0.0
    rows = function.sizes.padded(own_rows)
    padding = function.padding
    if padding is None or (len(requests) == 1 and not padding.compiled):
        return rows - own_rows, (rows - own_rows) / rows
    sent = [request.inputs for request in requests]
    own_elements = sum([inputs[name].size for inputs in sent for name in padding.inputs])
    computed = rows * sum(map(prod, padding.call_shape(sent, rows)))
    return rows - own_rows, 1 - own_elements / computed if computed else 0.0


def assemble(requests: Sequence[PendingRequest], own_rows: int, rows: int) -> dict[str, Array]:
    """The inputs of requests with `own_rows` rows in all, stacked and padded to [rows, ...].

    The arrays of a request that has all of them are passed on without a copy.
    """
    first = requests[0]
    if first.rows == rows:
        return dict(first.inputs)
    return {name: _stack([request.inputs[name] for request in requests], own_rows, rows) for name in first.inputs}


def _stack(parts: Sequence[Array], own_rows: int, rows: int) -> Array:
    if own_rows == rows:
        return np.concatenate(parts)
    if len(parts) == 1:
        return pad(parts[0], rows)
    stacked = np.empty((rows, *parts[0].shape[1:]), parts[0].dtype)
    np.concatenate(parts, out=stacked[:own_rows])
    stacked[own_rows:] = stacked[:1]  # padding repeats a real row: values that the model is made for
    return stacked


def pad(array: Array, rows: int) -> Array:
    """The array with its first row repeated behind its own rows: [rows, ...]."""
    padded: Array = array.take(_padded_indices(len(array), rows), axis=0)
    return padded


@lru_cache(1024)
def _padded_indices(own_rows: int, rows: int) -> Array:
    """The index of each own row, and 0 for each padding row."""
    numbers = np.zeros(rows, np.intp)
    numbers[:own_rows] = np.arange(own_rows)
    return numbers


def split(outputs: Outputs, request_rows: Sequence[int], rows: int) -> list[Outputs]:
    """The outputs of each request: its own rows, without padding.

    Raises:
        RowCountMismatch: an output is not [rows, ...].
    """
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
    """`split` for outputs whose rows differ in length."""
    if misfit := ragged.misfit(outputs, rows):
        raise RowCountMismatch(f"Output {misfit}")
    return [ragged.part(outputs, start, end) for start, end in pairwise(accumulate(request_rows, initial=0))]


def _parts(output: Array, request_rows: Sequence[int]) -> Iterable[Array]:
    if request_rows.count(1) == len(request_rows):
        parts: Iterable[Array] = output[: len(request_rows), np.newaxis]  # numpy is quicker to iterate than to slice
        return parts
    return [output[start:end] for start, end in pairwise(accumulate(request_rows, initial=0))]
