"""A model in the engine's process, as protocols in this one see it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.inference import InferenceRequest, InferenceResponse, ModelSignature
from app.core.interfaces import Cancellable
from app.core.reply import COMPLETED, Answer, Reply
from app.core.validation import find_signature

if TYPE_CHECKING:
    from app.frontends.frontend.engine_connection import EngineLink


#: As the default of `max_inline_ms`: who waits this long for others' rows does not notice.
_QUICK_S = 0.001


class RemoteModel:
    """One version of a model, of which the engine knows by `id`.

    Names and dtypes are checked before anything is sent, since tensors travel without them; the rest is for the
    engine to judge.

    Attributes:
        alone: each of its requests runs alone, so none may travel together.
    """

    def __init__(
        self,
        link: EngineLink,
        id: int,  # noqa: A002 - the protocol's word
        name: str,
        version: int,
        *,
        sizes: BatchSizes,
        signatures: Mapping[str, ModelSignature],
    ) -> None:
        self.id = id
        self.name = name
        self.version = version
        self.sizes = sizes
        self.signatures = signatures
        self.alone = False
        self._link = link
        self._unhindered_s: dict[str, float] = {}

    def signature(self, name: str) -> ModelSignature:
        """Raises SignatureNotFound."""
        return find_signature(self.signatures, name)

    def submit(self, request: InferenceRequest, reply: Reply) -> Cancellable:
        """Sends one request; `reply` gets its Answer, or a ServingError, on the event loop and after this returned.

        Raises:
            InvalidRequest, SignatureNotFound: names or dtypes do not fit the signature.
            ModelNotReady: the engine is gone.
            ShuttingDown: this frontend is draining.
        """
        return self._link.submit(self, request, reply)

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """`submit`, awaited. Raises the same and whatever the engine says."""
        reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        handle = self.submit(request, reply)
        try:
            return self.response(request, await reply)
        finally:
            handle.cancel()
            if reply.done() and not reply.cancelled():
                reply.exception()  # seen: asyncio must not report an error that nobody was left to hear

    def coalesces(self, signature: str) -> bool:
        """Were its calls quick of late? Then the requests of a turn go as one: their rows share a call anyway."""
        return not self.alone and self._unhindered_s.get(signature, inf) < _QUICK_S

    def submit_coalesced(
        self,
        request: InferenceRequest,
        arrivals_s: Sequence[float],  # noqa: ARG002 - as Model has it
        reply: Reply,
    ) -> Cancellable:
        """Sends the rows of several requests as one. Never raises."""
        try:
            return self.submit(request, reply)
        except ServingError as error:
            reply.set_exception(error)
            return COMPLETED

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        """The answer to `request`, and who computed it."""
        compute_s = answer.timing.compute_s
        known_s = self._unhindered_s.get(request.signature, compute_s)
        self._unhindered_s[request.signature] = min(compute_s, known_s + (compute_s - known_s) / 16)
        return InferenceResponse(answer.outputs, self.name, self.version, request.signature, answer.timing)

    def __repr__(self) -> str:
        return f"<RemoteModel {self.name}/{self.version}>"
