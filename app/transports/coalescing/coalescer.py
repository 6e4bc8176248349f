"""Coalescing: requests of one turn of the event loop that one call of a model computes, and how they are answered.

A transport groups the requests that arrived by their coalescing key. In each group, requests with alike deadlines are
read as one request, in as few calls of the model as possible. Unusual or invalid requests begin alone, in order of
arrival (requests_of_a_turn.py).

Requests for several models are all read, then all computed, then all answered. So each of the three steps finds its
code in the processor's caches, where the other two would replace it. Measured by bench.several_models: a hundred models
answer 1.5 times as many requests as model by model, three 1.06 times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from app.core.burst import Burst
from app.core.errors import InferenceFailed
from app.core.inference import InferenceRequest
from app.core.interfaces import ServedModel
from app.core.joining.groups import alike_groups, split_request
from app.core.joining.joined_reply import JoinedReply, PartReply
from app.core.reply import Answer
from app.transports.coalescing.requests_of_a_turn import BEGIN_S, RequestsOfATurn

logger = logging.getLogger(__name__)


class Arrived(PartReply, Protocol):
    """A whole request: an exchange of HTTP, or a call of gRPC.

    Attributes:
        started_s: when its head came, monotonic seconds.
        begun: it was submitted, alone or together with others.
        answered: its reply is decided, or its client has gone.
    """

    started_s: float
    begun: bool
    answered: bool

    def begin(self, content: bytes, /) -> None:
        """Submits it by itself; it gets the errors."""

    def record_model(self, model: ServedModel, signature: str) -> None:
        """Records the model and the signature that compute it, for its events."""


Request = TypeVar("Request", bound=Arrived)


@dataclass(slots=True)
class CoalescedRequest:
    """One request that stands for several.

    Attributes:
        request: inputs of shape [sum of rows, ...].
        rows: the number of rows of each request.
        max_rows: how many rows a call of the model may have.
    """

    model: ServedModel
    request: InferenceRequest
    rows: Sequence[int]
    max_rows: int


Read = TypeVar("Read", bound=CoalescedRequest)


class Coalescer(RequestsOfATurn[Request], Generic[Request, Read]):
    """The coalescer of a transport; subclasses say which requests are read as one, and how.

    Attributes:
        joined: makes the reply of requests that one call computes.
        clock: monotonic seconds.
    """

    joined: type[JoinedRequests[Request, Read]]

    def __init__(self, clock: Callable[[], float], burst: Burst) -> None:
        super().__init__(clock, burst)
        self.clock = clock
        self.answers = Answers(clock)

    # --- transports define these ---

    def groups(self, arrived: Sequence[tuple[Request, bytes]]) -> Mapping[Any, list[tuple[Request, bytes]]]:
        """Requests that may be read as one, of the same caller if callers are told apart."""
        raise NotImplementedError

    def deadlines_s(self, arrived: Sequence[tuple[Request, bytes]]) -> Sequence[float]:
        """The deadline of each request, in monotonic seconds."""
        raise NotImplementedError

    def read(self, key: Any, group: list[tuple[Request, bytes]], deadline_s: float) -> Read | None:
        """Reads a group as one request, which has its earliest deadline; None if each has to begin alone."""
        raise NotImplementedError

    # --- a turn ---

    def begin_together(self, arrived: Sequence[tuple[Request, bytes]]) -> list[tuple[Request, bytes]]:
        calls: list[JoinedRequests[Request, Read]] = []
        now = self.clock()
        for key, group in self.groups(arrived).items():
            try:
                alike = alike_groups(group, self.deadlines_s(group), now)
                for each, deadline_s in alike:
                    if len(each) > 1 or len(alike) == 1:  # else its body came slowly, or its time is short
                        calls += self._calls(key, each, deadline_s)
            except Exception:  # no accepted request may be lost: each begins alone
                logger.exception("A bug kept %d requests from being computed together", len(group))
        self.answers.submit(calls)
        return [each for each in arrived if not each[0].begun]

    def _calls(
        self, key: Any, group: list[tuple[Request, bytes]], deadline_s: float
    ) -> Iterator[JoinedRequests[Request, Read]]:
        read = self.read(key, group, deadline_s)
        if read is not None:
            for numbers, request in split_request(read.request, read.rows, read.max_rows):
                yield self.joined(self, group[numbers], numbers, read, request)


class JoinedRequests(JoinedReply[Request], Generic[Request, Read]):
    """The JoinedReply of requests of one turn.

    Args:
        arrived: the requests, with their bodies or messages.
        numbers: of these requests among those that were read as one.
        read: all requests that were read as one.
        request: the part of `read.request` for these requests.
    """

    __slots__ = ("_coalescer", "_contents", "_numbers", "_read", "_request")

    def __init__(
        self,
        coalescer: Coalescer[Request, Read],
        arrived: Sequence[tuple[Request, bytes]],
        numbers: slice,
        read: Read,
        request: InferenceRequest,
    ) -> None:
        super().__init__([each for each, _ in arrived], read.rows[numbers])
        self._contents = [content for _, content in arrived]
        self._coalescer = coalescer
        self._numbers = numbers
        self._read = read
        self._request = request

    def submit(self) -> None:
        """Submits the requests as one; answers may come before this returns. If it raises, each begins alone."""
        self.submit_to(self._read.model, self._request, [part.started_s for part in self.parts])

    def begin_alone(self, number: int) -> bool:
        self.parts[number].begin(self._contents[number])
        return True

    def has_time(self, number: int) -> bool:
        (deadline_s,) = self._coalescer.deadlines_s([(self.parts[number], self._contents[number])])
        return deadline_s > self._coalescer.clock()

    def fail(self, number: int, error: Exception) -> None:
        part = self.parts[number]
        part.record_model(self._read.model, self._request.signature)
        part.set_exception(error)

    def set_result(self, answer: Answer, /) -> None:
        self._end()
        self._coalescer.answers.give(self, answer)


Joined: TypeAlias = JoinedRequests[Any, Any]


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
        """Submits all calls. After BEGIN_S, answers that have come are sent before further calls are made."""
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
