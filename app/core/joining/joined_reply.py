"""The reply of several requests, its parts, that one call of a model computes.

Rules (tests/laws/test_joined_replies.py)
- Every part gets its own rows or its own error, once. A part that was answered or cancelled gets nothing.
- A part whose reply raises harms no other part: its caller gets an error, if that can be given.
- After an error that may be another part's fault, each part begins alone (`JoinedReply.set_exception`).
- The call is cancelled with its last part, unless it has an answer or an error by then.
- A reply that is set keeps no handle of its call.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Generic, Protocol, TypeVar

from app.core.errors import DeadlineExceeded, InvalidRequest, OutOfMemory
from app.core.inference import InferenceRequest
from app.core.interfaces import Cancellable, CoalescedHandle, ServedModel
from app.core.reply import COMPLETED, Answer, Reply, fail_broken


class PartReply(Reply, Protocol):
    """The reply of one part."""

    def submitted(self, handle: Cancellable) -> None:
        """The part waits for the call; `handle` cancels the part."""


Part = TypeVar("Part", bound=PartReply)


class JoinedReply(Generic[Part]):
    """The CoalescedReply of requests that were joined into one.

    Args:
        parts: the requests, in the order of their rows.
        part_rows: the rows of each part.
    """

    __slots__ = ("_handle", "_is_set", "_wanted", "part_rows", "parts")

    def __init__(self, parts: Sequence[Part], part_rows: Sequence[int]) -> None:
        self.parts = parts
        self.part_rows = part_rows
        self._handle: CoalescedHandle = COMPLETED
        self._is_set = False
        self._wanted = 0  # parts that may still cancel

    # --- subclasses define what their parts can ---

    def begin_alone(self, number: int) -> bool:  # noqa: ARG002 - a hook
        """Submits a part alone, if the subclass kept its request. Returns whether it did."""
        return False

    def has_time(self, number: int) -> bool:  # noqa: ARG002 - a hook
        """Whether the deadline of a part is still ahead, when that of the call has passed."""
        return False

    def give(self, number: int, answer: Answer) -> None:
        """Gives a part its own rows."""
        self.parts[number].set_result(answer)

    def fail(self, number: int, error: Exception) -> None:
        """Gives a part its error."""
        self.parts[number].set_exception(error)

    # --- the call ---

    def submit_to(self, model: ServedModel, request: InferenceRequest, arrivals_s: Sequence[float]) -> bool:
        """Submits the rows of all parts as one request, which may be answered before this returns.

        Returns whether the model took it; if not, each part has to begin by itself. Raises what the model raises.

        Args:
            arrivals_s: monotonic seconds, one for each of `rows`.
        """
        handle = model.submit_coalesced(request, arrivals_s, self)
        if handle is None:
            return False
        if not self._is_set:
            self._handle = handle
            for number, part in enumerate(self.parts):
                if not part.done():
                    self._wanted += 1
                    part.submitted(JoinedPart(self, number))
        return True

    def cancel_one(self, number: int) -> None:
        """Cancel one part. The handle of the part calls this, once."""
        self._wanted -= 1
        if self._wanted:
            self._leave(number)
        else:
            self._handle.cancel()

    def _leave(self, number: int) -> None:
        """Leaves a part out of the call; other parts still wait for the call."""
        self._handle.cancel_one(number)

    # --- CoalescedReply ---

    @property
    def rows(self) -> Sequence[int]:
        return self.part_rows

    def done(self) -> bool:
        for part in self.parts:  # noqa: SIM110 - quicker
            if not part.done():
                return False
        return True

    def separate(self) -> Sequence[Reply]:
        return [JoinedPart(self, number) for number in range(len(self.parts))]

    def set_result(self, answer: Answer, /) -> None:
        self._end()
        self.answer(answer)

    def answer(self, answer: Answer) -> None:
        """Gives each part its own rows."""
        outputs, timing = answer
        end = 0
        for number, (part, rows) in enumerate(zip(self.parts, self.part_rows, strict=True)):
            start, end = end, end + rows
            if not part.done():
                own = {name: array[start:end] for name, array in outputs.items()}
                try:
                    self.give(number, Answer(own, timing))
                except Exception:
                    fail_broken(JoinedPart(self, number))

    def set_exception(self, error: Exception, /) -> None:
        """Begins each part alone after an error that may be another part's fault; else each part gets a copy.

        Another part may have invalid values, or all parts together too many rows. A deadline that has passed is the
        earliest one.
        """
        self._end()
        anothers_fault = isinstance(error, InvalidRequest | OutOfMemory)
        anothers_deadline = isinstance(error, DeadlineExceeded)
        for number, part in enumerate(self.parts):
            if part.done():
                continue
            try:
                may_succeed = anothers_fault or (anothers_deadline and self.has_time(number))
                if not (may_succeed and self.begin_alone(number)):
                    self.fail(number, copy(error))
            except Exception:
                fail_broken(JoinedPart(self, number))

    def _end(self) -> None:
        self._is_set = True
        self._handle = COMPLETED


class JoinedPart:
    """One part of a joined reply: its handle, and its reply after the parts were separated."""

    __slots__ = ("_joined", "_number")

    def __init__(self, joined: JoinedReply[Part], number: int) -> None:
        self._joined = joined
        self._number = number

    def cancel(self) -> None:
        self._joined.cancel_one(self._number)

    def done(self) -> bool:
        return self._joined.parts[self._number].done()

    def set_result(self, answer: Answer, /) -> None:
        self._joined.give(self._number, answer)

    def set_exception(self, error: Exception, /) -> None:
        self._joined.fail(self._number, error)
