"""Calls that are begun and answered without a task each, alone or together with others of the same turn.

A protocol offers this for methods whose calls only need a model's computation. Messages that take long to read are left
to the method's answer (services.py), which reads them in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.codecs.protobuf.message_forms import MessageForm
from app.core.inference import Buffer, InferenceRequest, InferenceResponse, ModelSignature
from app.core.interfaces import Computing, ServedModel
from app.core.reply import Outputs
from app.transports.coalescing.coalescer import CoalescedRequest
from app.transports.grpc.calls import GrpcCall


@dataclass(slots=True)
class CallComputation:
    """The computation that a reply needs, and how its message is written. `write` raises ServingError."""

    model: Computing
    request: InferenceRequest
    write: Callable[[InferenceResponse], bytes]

    async def answer(self, call: GrpcCall) -> bytes:
        """The reply to `call`, awaited in its task. Raises ServingError."""
        response = await self.model.infer(self.request)
        return self.write(call.computed(self.request, response))


@dataclass(slots=True)
class CallsAsOne(CoalescedRequest):
    """Several calls as one request; all have equally many rows.

    `write`: the messages of calls that were computed together, from the outputs of all of them.
    """

    write: Callable[[Outputs], Sequence[bytes]]


def calls_as_one(
    form: MessageForm,
    contents: Sequence[bytes],
    model: ServedModel,
    signature: ModelSignature,
    write: Callable[[Outputs], Sequence[bytes]],
    **more: Any,
) -> CallsAsOne | None:
    """Messages of one form for all outputs of a quick model that is called with exactly these inputs; else None.

    `more`: of the request, such as deadline_s.
    """
    if not form.rows or not signature.batchable:
        return None
    max_rows = model.coalescable_rows(signature.name)
    if form.rows > max_rows or signature.inputs.keys() != {each.name for each in form.inputs}:
        return None
    request = InferenceRequest(form.read_together(contents), signature.name, **more)
    return CallsAsOne(model, request, [form.rows] * len(contents), max_rows, write)


def messages_of(count: int, starts: Sequence[bytes], outputs: Sequence[Buffer]) -> Sequence[bytes]:
    """The replies to `count` calls: of each output what comes before its numbers, and the call's part of these."""
    parts = []
    for start, numbers in zip(starts, outputs, strict=True):
        step = len(numbers) // count
        parts.append([start + numbers[step * number : step * (number + 1)] for number in range(count)])
    return parts[0] if len(parts) == 1 else [b"".join(each) for each in zip(*parts, strict=True)]


class Taskless(Protocol):
    """A method whose calls are begun on the event loop."""

    def begin(self, content: bytes, call: GrpcCall) -> CallComputation:
        """The computation that a message asks for; the model is recorded in `call`.

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
