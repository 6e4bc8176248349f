"""A version of a pipeline, which protocols call as they call a Model, a version of a SavedModel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from app.core.batch_sizes import BatchSizes
from app.core.bounded_cache import BoundedCache
from app.core.errors import ModelNotReady, ServingError
from app.core.inference import InferenceRequest, InferenceResponse, ModelSignature
from app.core.interfaces import Cancellable, CoalescedHandle, answer_of
from app.core.reply import Answer, CoalescedReply, Reply
from app.core.validation import (
    check_empty_rows,
    check_inputs,
    check_outputs,
    check_row_size,
    count_rows,
    find_signature,
)
from app.pipelines.binding import Binding
from app.pipelines.flows.arrivals import Arrivals
from app.pipelines.flows.flow import Flow
from app.pipelines.flows.joint_flow import JointFlow
from app.pipelines.flows.members import Member, MembersHandle

if TYPE_CHECKING:
    from app.model import LearntCosts

#: A number of rows above that of any call, to ask for the most rows of a joint flow. Chosen.
_MANY = 1 << 20

#: Forms of requests that were checked and are remembered. Chosen.
_MOST_FORMS = 1024


class PipelineModel:
    """A pipeline whose requests go through the models of its steps.

    Args:
        binding: the first plan and its models.
        sizes: the batch sizes of its models, for metadata.
        max_row_elements: a larger row of an input whose shape is open is rejected; 0 for no limit.

    Attributes:
        bound_to: the binding that new requests use; None while the model of a step is missing.
        missing: the missing models, as the end of a sentence; empty if there are none.
    """

    pipeline = True
    note = ""
    leased = False  # it is no step of another

    def __init__(self, name: str, version: int, binding: Binding, sizes: BatchSizes, max_row_elements: int = 0) -> None:
        self.name = name
        self.version = version
        self.sizes = sizes
        self.signatures: Mapping[str, ModelSignature] = {binding.plan.signature.name: binding.plan.signature}
        self.missing = ""
        self.bound_to: Binding | None = binding
        self._max_row_elements = max_row_elements
        self._bindings = 1  # bindings in use, earlier ones included
        self._forms: BoundedCache[object, bool] = BoundedCache(_MOST_FORMS)
        self._closed: asyncio.Future[None] | None = None
        self._arrivals = Arrivals(asyncio.get_running_loop())

    def signature(self, name: str) -> ModelSignature:
        """The signature of that name. Raises SignatureNotFound."""
        return find_signature(self.signatures, name)

    # --- requests ---

    def submit(self, request: InferenceRequest, reply: Reply) -> Cancellable:
        """Check one request and begin its first steps; `reply` gets its Answer or a ServingError, on the event loop.

        The steps begin in the next callback of the event loop, together with other requests. `reply` also gets the
        errors of admission (Overloaded, ShuttingDown, DeadlineExceeded).

        Raises:
            InvalidRequest, SignatureNotFound: the request does not fit the signature.
            ModelNotReady: this version is being unloaded, or waits for the model of a step.
        """
        if self._closed is not None:
            raise ModelNotReady(f"Version {self.version} of model {self.name} is being unloaded")
        if self.bound_to is None:
            raise ModelNotReady(f"Model {self.name} {self.missing}")
        binding = self.bound_to
        counts, form = self._check(request)
        if not binding.folds:
            return self._arrivals.add(binding, form, request, counts[0], reply)
        flow = Flow(binding, request, counts, reply, binding.clock())
        flow.enter()
        return flow

    def _check(self, request: InferenceRequest) -> tuple[list[int], object]:
        """The rows of the request, by kind, and its form, by which requests may be joined."""
        # 1. A form that was checked before needs no further check.
        inputs = request.inputs
        form = request.signature, request.outputs, *[
            (name, array.dtype, array.ndim, array.shape[1:]) for name, array in inputs.items()
        ]  # fmt: skip
        signature = find_signature(self.signatures, request.signature)
        if not self._forms.get(form):
            check_inputs(signature, inputs)
            if self._max_row_elements:
                check_row_size(signature, inputs, self._max_row_elements)
            check_outputs(signature, request.outputs)
            self._forms.keep(form, True)

        # 2. The rows.
        check_empty_rows(inputs)
        assert self.bound_to is not None  # noqa: S101 - a pipeline without a binding accepts no request
        counts = self.bound_to.plan.count_rows(inputs) if signature.mixed_rows else [count_rows(signature, inputs)]
        return counts, form

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """`submit`, awaited. Raises also InferenceFailed and DeadlineExceeded."""
        return self.response(request, await answer_of(partial(self.submit, request)))

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        return InferenceResponse(answer.outputs, self.name, self.version, request.signature, answer.timing)

    def coalescable_rows(self, signature: str) -> int:  # noqa: ARG002 - it has one
        """The most rows of requests that become one joint flow; 0 if each request is a flow of its own."""
        binding = self.bound_to
        return 0 if binding is None or self.closing or not binding.together else binding.joint_rows(_MANY)

    def submit_coalesced(
        self,
        request: InferenceRequest,
        arrivals_s: Sequence[float],  # noqa: ARG002 - a flow counts from where it begins
        reply: CoalescedReply,
    ) -> CoalescedHandle | None:
        """Begin several requests as one flow; None if they have to be submitted one by one."""
        if self._closed is not None or self.bound_to is None or not self.bound_to.together:
            return None
        try:
            self._check(request)
        except ServingError:
            return None
        members = [Member(own, rows) for own, rows in zip(reply.apart(), reply.rows, strict=True)]
        flow = JointFlow(self.bound_to, request, members, self.bound_to.clock(), reply)
        try:
            flow.begin()
        except ServingError:
            return None
        return MembersHandle(members)

    # --- facts ---

    def pads(self, signature: str) -> bool:  # noqa: ARG002 - as every model
        """Whether requests are padded: the models of its steps may be, and say so themselves."""
        return False

    def follows_rows(self, signature: str) -> bool:  # noqa: ARG002 - as every model
        return True

    def learnt_costs(self) -> Iterator[LearntCosts]:
        """The learnt costs: none, as calls are those of the models of its steps."""
        return iter(())

    # --- its models ---

    def bind(self, binding: Binding) -> None:
        """Use this binding for new requests; accepted requests keep theirs."""
        if self._closed is not None:
            self._bindings += 1
            binding.retire(self._binding_ended)
            return
        old, self.bound_to, self.missing = self.bound_to, binding, ""
        self._bindings += 1
        if old is not None:
            old.retire(self._binding_ended)

    def unbind(self, missing: str) -> None:
        """Reject new requests, as the model of a step is gone. `missing`: the end of the sentence that names it."""
        old, self.bound_to, self.missing = self.bound_to, None, missing
        if old is not None:
            old.retire(self._binding_ended)

    def _binding_ended(self) -> None:
        self._bindings -= 1
        if not self._bindings and self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    # --- the end ---

    @property
    def closing(self) -> bool:
        """Whether the version accepts no request any more."""
        return self._closed is not None

    async def close(self) -> None:
        """Accept nothing new, wait until everything that was accepted is answered, then let go of its models."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            if self.bound_to is not None:
                self.unbind("is being unloaded")
            if not self._bindings and not self._closed.done():
                self._closed.set_result(None)
            await asyncio.shield(self._closed)

    def __repr__(self) -> str:
        state = "" if self._closed is None else "closing, "
        return f"<PipelineModel {self.name}/{self.version}, {state}{self._bindings} bindings>"
