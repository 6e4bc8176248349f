"""The models and the repository as protocols see them, in this process or in the engine's process (frontends/)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from app.core.batch_sizes import BatchSizes
from app.core.inference import InferenceRequest, InferenceResponse, ModelSignature
from app.core.reply import Answer, CoalescedReply, Reply
from app.core.versions import VersionStatus


class Cancellable(Protocol):
    """An accepted request."""

    def cancel(self) -> None:
        """Stop waiting for the answer. To be called on every way out; does nothing once the request is answered."""


class CoalescedHandle(Cancellable, Protocol):
    """Accepted requests that were submitted as one."""

    def cancel_one(self, number: int) -> None:
        """Cancel the request of this number. Its rows are not computed where they can be left out."""


async def answer_of(submit: Callable[[Reply], Cancellable]) -> Answer:
    """The answer to the request that `submit` queues; the request is cancelled on every way out.

    Raises the errors of `submit`, and the ServingError that the request is answered with.
    """
    reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    handle = submit(reply)
    try:
        return await reply
    finally:
        handle.cancel()
        if reply.done() and not reply.cancelled():
            reply.exception()  # marks it as seen: asyncio must not report an error without a reader
        del reply, handle  # the traceback of its error holds this frame, and its callers' with the request's tensors


class LoadOverrides(NamedTuple):
    """Options of one load that replace settings, until the model is loaded by a call without them.

    batch_sizes: the row counts that the model is called with, ascending; empty: as the settings say.
    max_batch_delay_ms: milliseconds that an idle device waits for more requests; None: as the settings say.
    """

    batch_sizes: tuple[int, ...] = ()
    max_batch_delay_ms: float | None = None


NO_OVERRIDES = LoadOverrides()


class ServerHealth(Protocol):
    """The health of the server: whether it is alive, and ready."""

    def dead(self) -> list[str]:
        """Reasons to restart the process; empty if there are none."""

    def unready(self) -> list[str]:
        """Reasons to send no requests now; empty if there are none."""

    def problems(self) -> list[str]:
        """The models that do not work, with the reasons. There may be some although the server is ready."""


class Computing(Protocol):
    """A part that answers requests. Model documents the errors of the methods."""

    @property
    def signatures(self) -> Mapping[str, ModelSignature]: ...

    def submit(self, request: InferenceRequest, reply: Reply) -> Cancellable: ...

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse: ...

    async def infer(self, request: InferenceRequest) -> InferenceResponse: ...


class ServedModel(Computing, Protocol):
    """One version of a model. Model documents the errors of the methods."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def sizes(self) -> BatchSizes: ...

    @property
    def pipeline(self) -> bool:
        """Whether the model is made of other models."""

    @property
    def missing(self) -> str:
        """The reason why the model answers no requests, as the end of a sentence: a pipeline may wait for a model."""

    @property
    def note(self) -> str:
        """The unusual way in which the model was loaded, and the reason; empty if the way was usual."""

    def signature(self, name: str) -> ModelSignature: ...

    def coalescable_rows(self, signature: str) -> int:
        """The number of rows of requests for all outputs that are best submitted as one; 0 if they are best alone.

        Requests are best joined while the model is quick.
        """

    def submit_coalesced(
        self, request: InferenceRequest, arrivals_s: Sequence[float], reply: CoalescedReply
    ) -> CoalescedHandle | None:
        """Submit the rows of several requests as one; None if they have to be submitted one by one.

        `reply` gets the answer to all of them, possibly before this returns.
        """

    def pads(self, signature: str) -> bool:
        """Whether requests of different shapes share calls, padded."""


class ServedRepository(Protocol):
    """The served models. Catalog and ModelRepository document the errors of the methods."""

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> ServedModel: ...

    def names(self) -> list[str]: ...

    def known_names(self) -> list[str]: ...

    def statuses(self, name: str, version: int | None = None) -> Sequence[VersionStatus]: ...

    def default_name(self) -> str: ...

    async def load(self, name: str, overrides: LoadOverrides = NO_OVERRIDES) -> None: ...

    async def unload(self, name: str) -> None: ...
