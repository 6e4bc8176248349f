"""A model of the engine process, as protocols in a frontend call it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Protocol

from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.inference import InferenceRequest, InferenceResponse, ModelSignature
from app.core.interfaces import Cancellable, CoalescedHandle, answer_of
from app.core.reply import COMPLETED, Answer, CoalescedReply, Reply
from app.core.validation import find_signature
from app.frontends.channel.messages import QUICK_S


class RequestChannel(Protocol):
    """The way to the engine."""

    def submit(
        self, model: RemoteModel, request: InferenceRequest, reply: Reply, rows: Sequence[int] = ()
    ) -> CoalescedHandle:
        """As RemoteModel.submit."""


@dataclass(eq=False, repr=False)
class RemoteModel:
    """One version of a model, which the engine knows by `id`.

    Names and dtypes are checked here, since tensors are sent without them; the engine checks the rest.

    Attributes:
        alone: each of its requests runs alone, so requests are never coalesced.
        padded: the signatures whose requests are padded to share calls.
        missing: why it answers no requests; empty if it does.
        note: how it was loaded, where that is unusual, and why; empty if it is not.
        described: what the engine says of it, as it sent it last.
    """

    channel: RequestChannel
    id: int
    name: str
    version: int
    sizes: BatchSizes = field(default_factory=partial(BatchSizes, (1,)))
    signatures: Mapping[str, ModelSignature] = field(default_factory=dict)
    pipeline: bool = False
    alone: bool = False
    padded: Sequence[str] = ()
    missing: str = ""
    note: str = ""
    described: bytes = b""
    _uncontended_s: dict[str, float] = field(default_factory=dict)

    def describe(self, described: bytes) -> None:
        """Takes over what the engine says of it: these attributes as a pickle."""
        self.described = described
        known = pickle.loads(described)  # noqa: S301 - from Ferry
        self.sizes, self.signatures, self.pipeline, self.alone, self.padded, self.missing, self.note = known

    def signature(self, name: str) -> ModelSignature:
        """The signature of that name. Raises SignatureNotFound."""
        return find_signature(self.signatures, name)

    def submit(self, request: InferenceRequest, reply: Reply) -> Cancellable:
        """Send one request. `reply` gets its Answer or a ServingError on the event loop, after this returns.

        Raises:
            InvalidRequest, SignatureNotFound: names or dtypes do not match the signature.
            ModelNotReady: the engine is gone.
            ShuttingDown: this frontend is draining.
        """
        return self.channel.submit(self, request, reply)

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """`submit`, awaited. Raises the same, and the ServingError that the engine answers."""
        return self.response(request, await answer_of(partial(self.submit, request)))

    def pads(self, signature: str) -> bool:
        return signature in self.padded

    def coalescable_rows(self, signature: str) -> int:
        """The rows of a call if its recent calls were quick: requests of one turn are then sent as one."""
        alone = (
            self.alone or self.pipeline or signature not in self.signatures or self.signatures[signature].why_alone()
        )
        quick = not alone and self._uncontended_s.get(signature, inf) < QUICK_S
        return min(self.sizes.largest, self.signatures[signature].most_rows or self.sizes.largest) if quick else 0

    def submit_coalesced(
        self,
        request: InferenceRequest,
        arrivals_s: Sequence[float],  # noqa: ARG002 - the interface of Model
        reply: CoalescedReply,
    ) -> CoalescedHandle:
        """Send the rows of several requests as one. Never raises."""
        try:
            return self.channel.submit(self, request, reply, reply.rows)
        except ServingError as error:
            reply.set_exception(error)
            return COMPLETED

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        compute_s = answer.timing.compute_s
        known_s = self._uncontended_s.get(request.signature, compute_s)
        self._uncontended_s[request.signature] = min(compute_s, known_s + (compute_s - known_s) / 16)
        return InferenceResponse(answer.outputs, self.name, self.version, request.signature, answer.timing)
