"""A model: one loaded version, which protocols call. Requests are checked and placed (placement.py), then batched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from app.batching.batcher import Batcher
from app.batching.costs.cost_model import Costs
from app.batching.costs.curve import CostCurve
from app.batching.function import BatchFunction
from app.batching.priority import priority_offset_s
from app.batching.request import LaneKey, LaterSteps, PendingRequest, RequestHandle
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.inference import Array, InferenceRequest, InferenceResponse, InnerShapes, ModelSignature
from app.core.interfaces import CoalescedHandle, answer_of
from app.core.reply import COMPLETED, Answer, CoalescedReply, Reply
from app.core.validation import find_signature
from app.placement import FunctionKey, RequestPlacement
from app.runtime import note_of


class LearntCosts(NamedTuple):
    """The learnt costs of calls for some outputs and inner shapes.

    shape: the inner shapes, or the largest ones of a bucket.
    curve: seconds by number of rows.
    measured: the batch sizes that were measured; the costs of the rest are fitted.
    pace: the machine's time for calls, by which batch sizes are chosen.
    """

    signature: str
    outputs: tuple[str, ...]
    shape: InnerShapes
    bucket: bool
    curve: CostCurve
    measured: Collection[int]
    pace: CostCurve


class Model:
    """A loaded model whose requests go through the batcher.

    Args:
        sizes: the batch sizes of its calls, if the placement allows only some of them for now.

    Attributes:
        release: frees the model's memory, blocking.
    """

    pipeline = False
    missing = ""  # only a pipeline waits for models

    def __init__(self, placement: RequestPlacement, batcher: Batcher, sizes: BatchSizes | None = None) -> None:
        self.name = placement.model
        self.version = placement.version
        self.sizes = sizes or placement.sizes
        self.release: Callable[[], None] = placement.loaded.close
        self._placement = placement
        self._earlier: list[RequestPlacement] = []  # earlier placements with unanswered requests
        self._batcher = batcher
        self._all_outputs = {signature: FunctionKey(signature) for signature in self.signatures}
        self._closed: asyncio.Future[None] | None = None
        self._leases = 0

    @property
    def note(self) -> str:
        """The note of an unusual load; empty for a usual one."""
        return note_of(self._placement.loaded)

    @property
    def signatures(self) -> Mapping[str, ModelSignature]:
        return self._placement.signatures

    def signature(self, name: str) -> ModelSignature:
        """The signature of that name. Raises SignatureNotFound."""
        signatures = self._placement.signatures
        return signatures[name] if name in signatures else find_signature(signatures, name)

    def submit(self, request: InferenceRequest, reply: Reply) -> RequestHandle:
        """Check and queue one request; `reply` gets its Answer or a ServingError, on the event loop.

        Raises:
            InvalidRequest, SignatureNotFound: the request does not fit the signature.
            ModelNotReady: this version is being unloaded.
            Overloaded, ShuttingDown, DeadlineExceeded: rejected at admission, see core/errors.py.
        """
        key, function, rows = self._placement.place(request)
        now, offset_s = self._batcher.clock(), priority_offset_s(request.priority) if request.priority else 0.0
        placed = PendingRequest(request.inputs, rows, reply, now, request.deadline_s, offset_s, request.caller)
        return self._batcher.submit(key, function, placed)

    def submit_step(
        self,
        request: InferenceRequest,
        reply: Reply,
        arrival_s: float,
        later: LaterSteps | None = None,
        asked_s: float | None = None,
    ) -> RequestHandle:
        """Check and queue a step of a larger request, which holds a lease; see Steps.submit in app/batching/steps.py.

        Raises: of a first step (`later` is given), as `submit`; of another one, if it does not fit the signature.
        """
        key, function, rows = self._placement.place(request, leased=True)
        return self._submit_step(key, function, request, rows, reply, arrival_s, later, 1, asked_s)

    def compute_supplied(self, request: InferenceRequest) -> Answer | None:
        """The answer to a step that is being supplied, if it can be computed at once; None if it has to be submitted.

        Raises InvalidRequest: it does not fit the signature.
        """
        if not self._batcher.steps.computes_supplied:
            return None
        key, function, rows = self._placement.place(request, leased=True)
        return self._batcher.steps.compute_supplied(key, function, request.inputs, rows, request.caller)

    def compute_alone(self, request: InferenceRequest) -> Answer | None:
        """The answer to a later step of a request that is alone; None if it has to be submitted.

        Raises InvalidRequest: it does not fit the signature.
        """
        if not self._batcher.steps.lone:
            return None
        key, function, rows = self._placement.place(request, leased=True)
        return self._batcher.steps.compute_alone(key, function, request.inputs, rows, request.caller)

    def submit_steps(
        self,
        request: InferenceRequest,
        reply: CoalescedReply,
        arrival_s: float,
        later: LaterSteps | None,
        asked_s: float | None = None,
    ) -> RequestHandle | None:
        """`submit_step` for the rows of several larger requests; None if each has to be submitted by itself."""
        key, function, rows = self._placement.place(request, leased=True)
        if not function.coalescable:
            return None
        requests = len(reply.rows) if rows <= function.max_rows else 1  # else it is computed in parts, as one request
        return self._submit_step(key, function, request, rows, reply, arrival_s, later, requests, asked_s)

    def _submit_step(  # noqa: PLR0917 - it is called for each step, and arguments by name cost time
        self,
        key: LaneKey,
        function: BatchFunction,
        request: InferenceRequest,
        rows: int,
        reply: Reply,
        arrival_s: float,
        later: LaterSteps | None,
        requests: int,
        asked_s: float | None,
    ) -> RequestHandle:
        if self._closed is not None:
            function.on_idle = self._check_closed
        offset_s = priority_offset_s(request.priority) if request.priority else 0.0
        came_s = self._batcher.clock() if asked_s is None else asked_s
        step = PendingRequest(request.inputs, rows, reply, came_s, request.deadline_s, offset_s, request.caller)
        step.entered_s, step.again = arrival_s, asked_s is not None
        return self._batcher.steps.submit(key, function, step, later, requests)

    def call_rows(self, signature: str) -> int:
        """The rows of a step's full call now: larger requests would be cut. 1 if each request runs alone."""
        costs = self._costs(signature)
        return self._batcher.steps.full_call_rows(self.name, costs, self._placement.call_rows(signature))

    def most_rows(self, signature: str) -> int:
        """The most rows of a call that requests for all outputs may share by now; 1 if each runs alone."""
        return self._placement.call_rows(signature)

    def lone_rows(self, signature: str, inputs: Mapping[str, Array]) -> Array | None:
        """The rows of a step that must be in calls of their own, a mask [rows]; None if there are none."""
        return self._placement.lone_rows(signature, inputs)

    @property
    def leased(self) -> bool:
        """Whether pipelines compute steps with it, as long as they do not fit a later version."""
        return self._leases > 0

    def lease(self) -> None:
        """Compute steps until `end_lease`, also when the version accepts no other requests any more."""
        self._leases += 1

    def end_lease(self) -> None:
        self._leases -= 1
        self._check_closed()

    def expected_s(self, signature: str, rows: int) -> float:
        """Seconds that a call is expected to take, by the last calls; 0 if there were none."""
        costs = self._costs(signature)
        return 0.0 if costs is None else costs.call_s(min(rows, self.sizes.largest))

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """`submit`, awaited.

        Raises:
            InvalidRequest: the request does not fit the signature, or the model rejects its values.
            InferenceFailed: the model or the device failed.
            SignatureNotFound, ModelNotReady, Overloaded, ShuttingDown: nothing was queued.
            DeadlineExceeded: the deadline has passed.
        """
        return self.response(request, await answer_of(partial(self.submit, request)))

    def coalescable_rows(self, signature: str) -> int:
        """The most rows of requests for all outputs that are best submitted as one; 0 if each is submitted alone."""
        function = self._function(signature)
        if function is None or self._closed is not None:
            return 0
        return self._batcher.coalescable_rows(self.name, function)

    def _function(self, signature: str) -> BatchFunction | None:
        """The function of requests for all outputs; None before the first one."""
        key = self._all_outputs.get(signature)
        return None if key is None else self._placement.functions.get(key)

    def _costs(self, signature: str) -> Costs | None:
        """The costs of the last calls of requests for all outputs; None before the first one."""
        function = self._function(signature)
        return None if function is None else function.last_costs

    def submit_coalesced(
        self, request: InferenceRequest, arrivals_s: Sequence[float], reply: CoalescedReply
    ) -> CoalescedHandle | None:
        """Submit the rows of several requests as one; None if they have to be submitted one by one.

        `reply` gets the Answer to all of them, or a ServingError: before this returns if they are computed at once.

        Args:
            arrivals_s: monotonic seconds, one for each request.
        """
        try:
            key, function, rows = self._placement.place(request)
        except ServingError as error:
            reply.set_exception(error)
            return COMPLETED
        inputs, caller = request.inputs, request.caller
        together = PendingRequest(inputs, rows, reply, arrivals_s[0], request.deadline_s, 0.0, caller)
        together.coalesced_s = arrivals_s
        return self._batcher.submit_coalesced(key, function, together)

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        return InferenceResponse(answer.outputs, self.name, self.version, request.signature, answer.timing)

    def pads(self, signature: str) -> bool:
        """Whether requests of different shapes are padded to share calls."""
        padding = self._placement.paddings.get(signature)
        return padding is not None and padding.enabled

    def follows_rows(self, signature: str) -> bool:
        """Whether outputs have had one row for each row of the inputs so far. If not, requests run one by one."""
        functions = self._placement.functions.items()
        return all(
            each.batchable or key.alone
            for key, each in functions
            if key.signature == signature and each.padding is None
        )

    def learnt_costs(self) -> Iterator[LearntCosts]:
        """The learnt costs of called functions, and of other signatures that were timed before requests."""
        called = set()
        for (signature, outputs, _, bucket, _), function in self._placement.functions.items():
            for shape, costs in function.learnt.items():
                if costs.curve is not None and costs.measured:
                    called.add(signature)
                    pace = costs.pace or costs.curve
                    yield LearntCosts(signature, outputs, shape, bucket is not None, costs.curve, costs.measured, pace)
        for signature in self._placement.costs.keys() - called:
            costs = Costs(self._placement.sizes, self._placement.costs[signature])
            if costs.curve is not None:
                inputs = self.signatures[signature].inputs.values()  # of fixed inner shapes: only these are timed
                shape = tuple([tuple([size or 0 for size in (spec.shape or ())[1:]]) for spec in inputs])
                yield LearntCosts(signature, (), shape, False, costs.curve, costs.measured, costs.curve)

    def adopt(self, placement: RequestPlacement) -> None:
        """Use this placement for new requests; accepted ones keep their lane and function.

        On the event loop, or before the model is served.
        """
        if not self.closing:
            self._earlier = [each for each in (*self._earlier, self._placement) if each.open_requests]
            for (signature, what), reason in self._placement.stopped.items():
                placement.stop(signature, what, reason)
            for signature, most_rows in self._placement.limits.items():
                placement.limit(signature, most_rows)
            self._placement.end_trials()
            self._placement.successor = placement
            self._placement = placement

    @property
    def closing(self) -> bool:
        """Whether the version accepts no request any more. May be read from any thread."""
        return self._closed is not None

    async def close(self) -> None:
        """Accept nothing new, wait until everything that was accepted is answered, then free the memory."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            self._placement.closed = True
            self._placement.end_trials()
            self._batcher.remove_version(self.name)
            for placement in (*self._earlier, self._placement):
                for function in placement.all_functions:
                    function.on_idle = self._check_closed
            self._check_closed()
            await asyncio.shield(self._closed)
            await asyncio.to_thread(self.release)

    @property
    def open_requests(self) -> int:
        """The number of requests that wait or are being computed."""
        return sum(placement.open_requests for placement in (*self._earlier, self._placement))

    def _check_closed(self) -> None:
        if self._closed is not None and not (self._leases or self.open_requests or self._closed.done()):
            self._closed.set_result(None)

    def __repr__(self) -> str:
        state = "" if self._closed is None else "closing, "
        return f"<Model {self.name}/{self.version}, {state}{self.open_requests} open requests>"
