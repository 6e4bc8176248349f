"""Calls that are begun and answered without a task each, alone or together with others of the same turn.

A protocol offers this for methods whose calls only need a model's computation. What it leaves, messages that take long
to read, the method's answer (services.py) reads in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.core.inference import InferenceRequest, InferenceResponse
from app.core.interfaces import Computing, ServedModel
from app.core.reply import Outputs
from app.transports.grpc.calls import GrpcCall


@dataclass(slots=True)
class CallComputation:
    """What has to be computed for a reply, and how its message is written. `write` raises ServingError."""

    model: Computing
    request: InferenceRequest
    write: Callable[[InferenceResponse], bytes]

    async def answer(self, call: GrpcCall) -> bytes:
        """The reply to `call`, awaited in its task. Raises ServingError."""
        response = await self.model.infer(self.request)
        return self.write(call.computed(self.request, response))


@dataclass(slots=True)
class CallsAsOne:
    """Several calls as one request.

    Attributes:
        request: inputs of shape [sum of rows, ...].
        rows: of each call; all have as many.
        max_rows: how many rows a call of the model may have.
        write: the messages of calls that were computed together, from the outputs of all of them.
    """

    model: ServedModel
    request: InferenceRequest
    rows: int
    max_rows: int
    write: Callable[[Outputs], Sequence[bytes]]


class Taskless(Protocol):
    """A method whose calls are begun on the event loop."""

    def begin(self, content: bytes, call: GrpcCall) -> CallComputation:
        """What a message asks for; the model is recorded in `call`.

        Raises:
            ServingError, DecodeError: it cannot be computed.
            TakesLong: reading it would hold up the event loop; the method's answer reads it elsewhere.
        """

    def form(self, content: bytes) -> Hashable | None:
        """Messages with equal forms may be computed together; None for one that is not known to be."""

    def model(self, form: Any) -> str:
        """The name of the model that messages of a form are for, as they name it."""

    def begin_coalesced(
        self, form: Any, contents: Sequence[bytes], deadline_s: float, caller: str
    ) -> CallsAsOne | None:
        """Messages of one form as one request; None if each has to begin alone. Never raises."""
