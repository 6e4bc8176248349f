"""What protocols call: one version of a model, checked at the door and batched behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from app.batching.batcher import Batcher
from app.batching.cost_model import CostCurve, Costs
from app.batching.function import BatchFunction, Run
from app.batching.priority import priority_offset_s
from app.batching.request import LaneKey, RequestHandle
from app.batching.shapes.padding import ShapePadding, Shapes
from app.batching.shapes.ragged import RaggedRows
from app.core.batch_sizes import BatchSizes
from app.core.errors import ModelNotReady, ServingError
from app.core.inference import Array, InferenceRequest, InferenceResponse, ModelSignature
from app.core.masks import with_masks
from app.core.reply import COMPLETED, Answer, Completed, Reply
from app.core.validation import (
    check_inputs,
    check_names_and_dtypes,
    check_outputs,
    count_rows,
    find_signature,
    shapes_fit,
)
from app.runtime import LoadedModel, replicas_of

#: Subsets of outputs are the callers' choice; this many are remembered.
_MAX_FUNCTIONS = 256

#: So are forms of requests.
_MAX_LANES = 1024

#: Who runs alone counts as one row.
_ALONE = BatchSizes((1,))

#: Signature, outputs, and name, dtype, rank and inner shape of each input.
_Form = tuple[Any, ...]

#: Signature, outputs, whether it runs alone, and the bucket whose requests are padded.
_FunctionKey = tuple[str, tuple[str, ...], bool, Shapes | None]


class LearntCosts(NamedTuple):
    """What calls for these outputs and of this inner shape cost; it may be the largest shape of a bucket."""

    signature: str
    outputs: tuple[str, ...]
    shape: Shapes
    bucket: bool
    curve: CostCurve
    measured: Collection[int]


class Model:
    """A loaded model whose requests go through the batcher.

    Args:
        batching: without it each request runs alone, just as it came.
        strict_shapes: without it a request whose shapes do not fit the signature runs alone, for the model to judge.
        paddings: of the signatures for which requests of different shapes may be padded to share a call.
        costs: by signature, the seconds of a call at each batch size, where they were measured.
        signatures: where callers see others than those loaded, since they may leave masks out.
    """

    def __init__(
        self,
        name: str,
        version: int,
        loaded: LoadedModel,
        batcher: Batcher,
        sizes: BatchSizes,
        *,
        batching: bool = True,
        strict_shapes: bool = True,
        paddings: Mapping[str, ShapePadding] = MappingProxyType({}),
        costs: Mapping[str, Mapping[int, float]] = MappingProxyType({}),
        signatures: Mapping[str, ModelSignature] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.sizes = sizes
        self.signatures = loaded.signatures if signatures is None else signatures
        self._loaded = loaded
        self._batcher = batcher
        self._batching = batching
        self._strict_shapes = strict_shapes
        self._paddings = paddings
        self._costs = costs
        self._lanes: dict[_Form, tuple[LaneKey, BatchFunction]] = {}
        self._functions: dict[_FunctionKey, BatchFunction] = {}
        self._closed: asyncio.Future[None] | None = None

    def signature(self, name: str) -> ModelSignature:
        """Raises SignatureNotFound."""
        return find_signature(self.signatures, name)

    def submit(self, request: InferenceRequest, reply: Reply) -> RequestHandle:
        """Checks and queues one request; `reply` gets its Answer, or a ServingError, on the event loop.

        Raises:
            InvalidRequest, SignatureNotFound: it does not fit the signature.
            ModelNotReady: this version is being unloaded.
            Overloaded, ShuttingDown, DeadlineExceeded: rejected at the door, see core/errors.py.
        """
        key, function, rows = self._place(request)
        start_s = priority_offset_s(request.priority) if request.priority else 0.0
        return self._batcher.submit(
            key, function, request.inputs, rows, reply, deadline_s=request.deadline_s, priority_offset_s=start_s
        )

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """`submit`, awaited. Raises the same, what the model says to the values, and InferenceFailed."""
        key, function, rows = self._place(request)
        answer = await self._batcher.infer(
            key,
            function,
            request.inputs,
            rows,
            request.deadline_s,
            priority_offset_s=priority_offset_s(request.priority),
        )
        return self.response(request, answer)

    def coalesces(self, signature: str) -> bool:
        """Would a request for all outputs be computed right now, without waiting in line? See Batcher."""
        function = self._functions.get((signature, (), False, None))
        return function is not None and self._closed is None and self._batcher.runs_inline(function)

    def submit_coalesced(
        self, request: InferenceRequest, arrivals_s: Sequence[float], reply: Reply
    ) -> Completed | None:
        """Computes the rows of several requests right now; None where they are to be submitted one by one."""
        try:
            key, function, rows = self._place(request)
            answer = self._batcher.run_inline(key, function, request.inputs, rows, arrivals_s)
        except ServingError as error:
            reply.set_exception(error)
            return COMPLETED
        if answer is None:
            return None
        reply.set_result(answer)
        return COMPLETED

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        """The answer to `request`, and who computed it."""
        return InferenceResponse(answer.outputs, self.name, self.version, request.signature, answer.timing)

    def pads(self, signature: str) -> bool:
        """Do requests of different shapes share calls, padded?"""
        padding = self._paddings.get(signature)
        return padding is not None and padding.enabled

    def follows_rows(self, signature: str) -> bool:
        """Have the outputs had a row for each row of the inputs so far? Requests run one by one where they have not."""
        unpadded = [each for key, each in self._functions.items() if key[0] == signature and each.padding is None]
        return all(each.batchable for each in unpadded)

    def learnt_costs(self) -> Iterator[LearntCosts]:
        """Of each signature that was called, or timed at warm-up."""
        called = set()
        for (signature, outputs, _, bucket), function in self._functions.items():
            for shape, costs in function.learnt.items():
                if costs.curve is not None:
                    called.add(signature)
                    yield LearntCosts(signature, outputs, shape, bucket is not None, costs.curve, costs.measured)
        for signature in self._costs.keys() - called:
            costs = Costs(self.sizes, self._costs[signature])
            if costs.curve is not None:
                yield LearntCosts(
                    signature, (), _fixed_shapes(self.signature(signature)), False, costs.curve, costs.measured
                )

    async def close(self) -> None:
        """Takes nothing new, waits until everything accepted is answered, then gives the memory back."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            for function in self._functions.values():
                function.on_idle = self._check_closed
            self._check_closed()
            await asyncio.shield(self._closed)
            await asyncio.to_thread(self._loaded.close)

    def _place(self, request: InferenceRequest) -> tuple[LaneKey, BatchFunction, int]:
        """The lane that the request waits in, what runs it, and the rows that it counts for. Raises as `submit`."""
        if self._closed is not None:
            raise ModelNotReady(f"Version {self.version} of model {self.name} is being unloaded")
        form = request.signature, request.outputs, *[
            (name, array.dtype, array.ndim, array.shape[1:]) for name, array in request.inputs.items()
        ]  # fmt: skip
        known = self._lanes.get(form)
        if known is None:
            return self._check_and_place(request, form)
        key, function = known
        if not function.batchable or (function.padding is not None and not function.padding.enabled):
            return self._check_and_place(request, form)
        rows = -1
        for array in request.inputs.values():
            if rows not in {-1, len(array)}:
                return self._check_and_place(request, form)
            rows = len(array)
        return key, function, rows

    def _check_and_place(self, request: InferenceRequest, form: _Form) -> tuple[LaneKey, BatchFunction, int]:
        """The same, with every check; remembers the lane of what may share one, since its form fits then."""
        signature, inputs, outputs = self.signature(request.signature), request.inputs, request.outputs
        if signature.masks.keys() - inputs.keys():
            request.inputs = with_masks(signature, inputs)
            return self._place(request)
        alone = self._runs_alone(signature, inputs) or _tears_ragged(signature, outputs)
        bucket = None if alone else self._bucket(signature, inputs)
        function = self._function(signature, outputs, alone, bucket)
        if not function.batchable:
            # Also if it was found so only now: a lane has one function, which counts those that leave it.
            function = self._function(signature, outputs, alone=True, bucket=None)
            return LaneKey(self.name, self.version, signature.name, outputs), function, 1
        rows = count_rows(signature, inputs)
        shape = bucket or tuple([inputs[name].shape[1:] for name in signature.inputs])
        key = LaneKey(self.name, self.version, signature.name, outputs, shape, bucket is not None)
        if len(self._lanes) >= _MAX_LANES:
            self._lanes.clear()
        if not signature.ragged:  # its rows are not the lengths of its inputs
            self._lanes[form] = key, function
        return key, function, rows

    def _runs_alone(self, signature: ModelSignature, inputs: Mapping[str, Array]) -> bool:
        """May the request not share a call with others? Raises InvalidRequest where it is not run at all."""
        if self._strict_shapes:
            check_inputs(signature, inputs)
        else:
            check_names_and_dtypes(signature, inputs)
            if not shapes_fit(signature, inputs):
                return True
        return not (self._batching and signature.batchable)

    def _bucket(self, signature: ModelSignature, inputs: Mapping[str, Array]) -> Shapes | None:
        padding = self._paddings.get(signature.name)
        return padding.bucket(inputs) if padding is not None else None

    def _function(
        self, signature: ModelSignature, outputs: tuple[str, ...], alone: bool, bucket: Shapes | None
    ) -> BatchFunction:
        key = signature.name, outputs, alone, bucket
        function = self._functions.get(key)
        if function is None:
            check_outputs(signature, outputs)
            if len(self._functions) >= _MAX_FUNCTIONS:
                self._functions = {key: each for key, each in self._functions.items() if each.requests_under_way}
                self._lanes.clear()
            padding = self._paddings[signature.name] if bucket is not None else None
            ragged = RaggedRows(signature.ragged) if signature.ragged else None
            ragged_outputs = (
                RaggedRows(_wanted(signature.ragged_outputs, outputs)) if signature.ragged_outputs else None
            )
            seeds = None if alone else self._costs.get(signature.name)
            runs = [_run_of(replica, signature.name, outputs) for replica in replicas_of(self._loaded)]
            sizes = _ALONE if alone else self.sizes
            function = BatchFunction(runs[0], sizes, not alone, padding, ragged, seeds, ragged_outputs, replicas=runs)
            self._functions[key] = function
        return function

    @property
    def _open_requests(self) -> int:
        return sum(function.requests_under_way for function in self._functions.values())

    def _check_closed(self) -> None:
        if self._closed is not None and not self._open_requests and not self._closed.done():
            self._closed.set_result(None)

    def __repr__(self) -> str:
        return f"<Model {self.name}/{self.version}, {self._open_requests} open requests>"


def _fixed_shapes(signature: ModelSignature) -> Shapes:
    return tuple([tuple([size or 0 for size in (spec.shape or ())[1:]]) for spec in signature.inputs.values()])


def _run_of(replica: LoadedModel, signature: str, outputs: tuple[str, ...]) -> Run:
    run = replica.run
    return lambda inputs: run(signature, inputs, outputs)


def _tears_ragged(signature: ModelSignature, outputs: tuple[str, ...]) -> bool:
    """Are values wanted without their row splits, or the other way round? Then nobody can tell whose rows are whose."""
    groups = [{values, *splits} for values, splits in signature.ragged_outputs.items()]
    return bool(outputs) and any(not (group.isdisjoint(outputs) or group.issubset(outputs)) for group in groups)


def _wanted(ragged: Mapping[str, tuple[str, ...]], outputs: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {values: splits for values, splits in ragged.items() if not outputs or values in outputs}
