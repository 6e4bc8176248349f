"""What protocols call: one version of a pipeline, as a Model is one version of a SavedModel."""

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

#: As if this many rows arrived together: more than a call takes. Chosen.
_MANY = 1 << 20

#: Forms of requests that were checked and are remembered. Chosen.
_MOST_FORMS = 1024


class PipelineModel:
    """A pipeline whose requests go through the models of its steps.

    Args:
        binding: the plan and the models to begin with.
        sizes: the batch sizes that its models are called with, as callers are told.
        max_row_elements: a larger row of an input whose shape is open is rejected; 0 for no limit.

    Attributes:
        missing: which model it waits for, as the end of a sentence; empty if all are there.
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
        self._binding: Binding | None = binding
        self._max_row_elements = max_row_elements
        self._bindings = 1  # in use, the earlier ones included
        self._forms: BoundedCache[object, bool] = BoundedCache(_MOST_FORMS)
        self._closed: asyncio.Future[None] | None = None
        self._arrivals = Arrivals(asyncio.get_running_loop())

    def signature(self, name: str) -> ModelSignature:
        """The signature of that name. Raises SignatureNotFound."""
        return find_signature(self.signatures, name)

    # --- requests ---

    def submit(self, request: InferenceRequest, reply: Reply) -> Cancellable:
        """Check one request and begin its first steps; `reply` gets its Answer or a ServingError, on the event loop.

        It begins in the next callback of the event loop, with others that have arrived by then; that it is rejected at
        admission (Overloaded, ShuttingDown, DeadlineExceeded) its reply is told, too.

        Raises:
            InvalidRequest, SignatureNotFound: the request does not fit the signature.
            ModelNotReady: this version is being unloaded, or waits for the model of a step.
        """
        if self._closed is not None:
            raise ModelNotReady(f"Version {self.version} of model {self.name} is being unloaded")
        if self._binding is None:
            raise ModelNotReady(f"Model {self.name} {self.missing}")
        binding = self._binding
        counts, form = self._check(request)
        if not binding.folds:
            return self._arrivals.add(binding, form, request, counts[0], reply)
        flow = Flow(binding, request, counts, reply, binding.clock())
        flow.enter()
        return flow

    def _check(self, request: InferenceRequest) -> tuple[list[int], object]:
        """The rows of the request, by kind, and its form: what it has in common with others that go its way."""
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
        check_empty_rows(inputs)
        assert self._binding is not None  # noqa: S101 - it is asked of requests that are accepted
        counts = self._binding.plan.count_rows(inputs) if signature.mixed_rows else [count_rows(signature, inputs)]
        return counts, form

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """`submit`, awaited. Raises also InferenceFailed and DeadlineExceeded."""
        return self.response(request, await answer_of(partial(self.submit, request)))

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        return InferenceResponse(answer.outputs, self.name, self.version, request.signature, answer.timing)

    def coalescable_rows(self, signature: str) -> int:  # noqa: ARG002 - it has one
        """How many rows of requests that arrive together go through it as one; 0 where each goes alone."""
        binding = self._binding
        return 0 if binding is None or self.closing or not binding.together else binding.joint_rows(_MANY)

    def submit_coalesced(
        self,
        request: InferenceRequest,
        arrivals_s: Sequence[float],  # noqa: ARG002 - a flow counts from where it begins
        reply: CoalescedReply,
    ) -> CoalescedHandle | None:
        """Begins several requests as one; None if they have to be submitted one by one."""
        if self._closed is not None or self._binding is None or not self._binding.together:
            return None
        try:
            self._check(request)
        except ServingError:
            return None
        members = [Member(own, rows) for own, rows in zip(reply.apart(), reply.rows, strict=True)]
        flow = JointFlow(self._binding, request, members, self._binding.clock(), reply)
        try:
            flow.begin()
        except ServingError:
            return None
        return MembersHandle(members)

    # --- what is known of it ---

    def pads(self, signature: str) -> bool:  # noqa: ARG002 - as every model
        """Its models may pad, and say so themselves."""
        return False

    def follows_rows(self, signature: str) -> bool:  # noqa: ARG002 - as every model
        return True

    def learnt_costs(self) -> Iterator[LearntCosts]:
        """None of its own: they are those of its models."""
        return iter(())

    # --- its models ---

    def bind(self, binding: Binding) -> None:
        """From now on requests go through these models; those that were accepted keep theirs."""
        if self._closed is not None:
            self._bindings += 1
            binding.retire(self._binding_ended)
            return
        old, self._binding, self.missing = self._binding, binding, ""
        self._bindings += 1
        if old is not None:
            old.retire(self._binding_ended)

    def unbind(self, missing: str) -> None:
        """A model of a step is gone: new requests are rejected. `missing` says what is waited for."""
        old, self._binding, self.missing = self._binding, None, missing
        if old is not None:
            old.retire(self._binding_ended)

    @property
    def bound_to(self) -> Binding | None:
        return self._binding

    def _binding_ended(self) -> None:
        self._bindings -= 1
        if not self._bindings and self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    # --- the end ---

    @property
    def closing(self) -> bool:
        """Whether it accepts nothing any more."""
        return self._closed is not None

    async def close(self) -> None:
        """Accept nothing new, wait until everything that was accepted is answered, then let go of its models."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            if self._binding is not None:
                self.unbind("is being unloaded")
            if not self._bindings and not self._closed.done():
                self._closed.set_result(None)
            await asyncio.shield(self._closed)

    def __repr__(self) -> str:
        state = "" if self._closed is None else "closing, "
        return f"<PipelineModel {self.name}/{self.version}, {state}{self._bindings} bindings>"
