"""A model in the engine's process, as protocols in this one see it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.batching.batch import Answer
from app.batching.padding import BatchSizes
from app.batching.pending import Reply
from app.inference import InferenceRequest, InferenceResponse, ModelSignature
from app.serving import Withdrawable
from app.validation import find_signature

if TYPE_CHECKING:
    from app.frontends.engine_link import EngineLink


class RemoteModel:
    """One version of a model, of which the engine knows by `id`.

    Names and dtypes are checked before anything is sent, since tensors travel without them; the rest is for the
    engine to judge.
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
        self._link = link

    def signature(self, name: str) -> ModelSignature:
        """Raises SignatureNotFound."""
        return find_signature(self.signatures, name)

    def submit(self, request: InferenceRequest, reply: Reply) -> Withdrawable:
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
        submission = self.submit(request, reply)
        try:
            return self.response(request, await reply)
        finally:
            submission.withdraw()
            if reply.done() and not reply.cancelled():
                reply.exception()  # seen: asyncio must not report an error that nobody was left to hear

    def answers_at_once(self, signature: str) -> bool:  # noqa: ARG002 - the signature of all models
        """Nothing is: the answer comes from another process."""
        return False

    def infer_at_once(
        self,
        request: InferenceRequest,  # noqa: ARG002 - as above
        arrivals_s: Sequence[float],  # noqa: ARG002 - as above
    ) -> InferenceResponse | None:
        return None

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        """The answer to `request`, and who computed it."""
        return InferenceResponse(answer.outputs, self.name, self.version, request.signature, answer.timing)

    def __repr__(self) -> str:
        return f"<RemoteModel {self.name}/{self.version}>"
