"""Requests of one turn of the event loop that one call of a model computes, and when their answers are given.

Requests for several models are all read, then all computed, then all answered: so each of these finds its code in the
processor's caches, from which those of the other two would drive it. Measured by bench.several_models: a hundred models
answer 1.5 times as many requests as model by model, three 1.06 times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from app.core.errors import InferenceFailed
from app.core.inference import InferenceRequest
from app.core.interfaces import Cancellable, ServedModel
from app.core.joining.joined_reply import JoinedReply
from app.core.reply import Answer, Reply

logger = logging.getLogger(__name__)

#: No request begins alone later in a turn of the event loop. Chosen: some turns pass until `/livez` is answered.
BEGIN_S = 0.003


class Arrived(Reply, Protocol):
    """A whole request: an exchange of HTTP, or a call of gRPC.

    Attributes:
        started_s: when its head came, monotonic seconds.
    """

    started_s: float

    def begin(self, content: bytes, /) -> None:
        """Submits it by itself; it gets the errors."""

    def submitted(self, handle: Cancellable) -> None:
        """It was submitted together with others; `handle` cancels it."""

    def record_model(self, model: ServedModel, signature: str) -> None:
        """Records the model and the signature that compute it, for its events."""


Part = TypeVar("Part", bound=Arrived)


class JoinedRequests(JoinedReply[Part]):
    """The JoinedReply of requests of one turn.

    Args:
        arrived: the requests, with their bodies or messages.
        rows: of each request.
        request: has the rows of all.
    """

    __slots__ = ("_answers", "_contents", "model", "request")

    def __init__(
        self,
        arrived: Sequence[tuple[Part, bytes]],
        rows: Sequence[int],
        model: ServedModel,
        request: InferenceRequest,
        answers: Answers,
    ) -> None:
        super().__init__([part for part, _ in arrived], rows)
        self.model = model
        self.request = request
        self._contents = [content for _, content in arrived]
        self._answers = answers

    def submit(self) -> None:
        """Their answers may come before this returns, by `Answers.give`. If it raises, each begins alone."""
        self.submit_to(self.model, self.request, [part.started_s for part in self.parts])

    def submitted(self, number: int, handle: Cancellable) -> None:
        self.parts[number].submitted(handle)

    def begin_alone(self, number: int) -> bool:
        self.parts[number].begin(self._contents[number])
        return True

    def fail(self, number: int, error: Exception) -> None:
        part = self.parts[number]
        part.record_model(self.model, self.request.signature)
        part.set_exception(error)

    def set_result(self, answer: Answer, /) -> None:
        self._end()
        self._answers.give(self, answer)


Joined: TypeAlias = JoinedRequests[Any]


class Answers:
    """The answers of a turn's calls, which are given at once, or when all calls of the turn are made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: list[tuple[Joined, Answer]] | None = None

    def give(self, call: Joined, answer: Answer) -> None:
        if self._held is None:
            call.answer(answer)
        else:
            self._held.append((call, answer))

    def submit(self, calls: Sequence[Joined]) -> None:
        """Submits all; what is there after BEGIN_S is given before more calls are made."""
        if len(calls) > 1:
            self._held = []
        end_s = self._clock() + BEGIN_S
        for call in calls:
            try:
                call.submit()
            except Exception:  # no accepted request may be lost: each begins alone
                logger.exception("A bug kept %d requests from being computed together", len(call.parts))
            if self._held and self._clock() >= end_s:
                self._give_held()
                self._held, end_s = [], self._clock() + BEGIN_S
        self._give_held()

    def _give_held(self) -> None:
        held, self._held = self._held or (), None
        for call, answer in held:
            try:
                call.answer(answer)
            except Exception:
                logger.exception("The answer to %d requests could not be given", len(call.parts))
                call.set_exception(InferenceFailed("The answer could not be given to its caller"))
