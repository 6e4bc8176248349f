"""What protocols see of models, be they in this process (model.py, repository/) or in the engine's (frontends/)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.core.batch_sizes import BatchSizes
from app.core.inference import InferenceRequest, InferenceResponse, ModelSignature
from app.core.reply import Answer, Reply
from app.core.versions import VersionStatus


class Cancellable(Protocol):
    """A request that was accepted."""

    def cancel(self) -> None:
        """Nobody waits for the answer any more. To be called on every way out; once it is answered it does nothing."""


class ServedModel(Protocol):
    """One version of a model; see Model for what the methods raise."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def sizes(self) -> BatchSizes: ...

    @property
    def signatures(self) -> Mapping[str, ModelSignature]: ...

    def signature(self, name: str) -> ModelSignature: ...

    def submit(self, request: InferenceRequest, reply: Reply) -> Cancellable: ...

    def coalesces(self, signature: str) -> bool:
        """Is the model so quick that requests of one turn may be one to it? Of default outputs, with rows to join."""

    def submit_coalesced(
        self, request: InferenceRequest, arrivals_s: Sequence[float], reply: Reply
    ) -> Cancellable | None:
        """Submits the rows of several requests as one; None where they are to be submitted one by one.

        `reply` gets the answer to all of them, perhaps before this returns.
        """

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse: ...

    async def infer(self, request: InferenceRequest) -> InferenceResponse: ...


class ServedRepository(Protocol):
    """The models that there are; see ModelRepository for what the methods raise."""

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> ServedModel: ...

    def names(self) -> list[str]: ...

    def known_names(self) -> list[str]: ...

    def statuses(self, name: str, version: int | None = None) -> Sequence[VersionStatus]: ...

    def default_name(self) -> str: ...

    async def load(self, name: str) -> None: ...

    async def unload(self, name: str) -> None: ...
