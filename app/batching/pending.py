"""A request on its way through the batcher. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from app.batching.priority import PATIENCE_S
from app.errors import ServingError
from app.inference import Array

if TYPE_CHECKING:
    from app.batching.lane import Lane
    from app.batching.large import Parts


class Reply(Protocol):
    """Where the answer goes: an asyncio.Future, or a fake of one."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class _Answered:
    """Stands for a reply that was given, and keeps nothing of it."""

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return None

    def set_result(self, _result: Any, /) -> None:
        raise AssertionError("answered twice")

    set_exception = set_result


#: The reply of a request that nobody waits for.
ANSWERED = _Answered()
_NOTHING: Mapping[str, Array] = {}


class PendingRequest:
    """What one caller waits for, or one part of it (large.py).

    Times are monotonic seconds: it came at `arrival_s` and stands in its lane since `entered_s`, which differ only
    for what is left of a request that is computed in parts. `head_start_s` see priority.py.
    """

    __slots__ = ("arrival_s", "deadline_s", "entered_s", "head_start_s", "inputs", "lane", "parts", "reply", "rows")

    def __init__(  # noqa: PLR0917 - one is made for each request, and names cost time
        self,
        inputs: Mapping[str, Array],
        rows: int,
        reply: Reply,
        arrival_s: float,
        deadline_s: float = inf,
        head_start_s: float = 0.0,
    ) -> None:
        self.inputs = inputs
        self.rows = rows
        self.reply = reply
        self.arrival_s = arrival_s
        self.entered_s = arrival_s
        self.deadline_s = deadline_s
        self.head_start_s = head_start_s
        self.lane: Lane | None = None
        self.parts: Parts | None = None

    @property
    def weight(self) -> int:
        return self.rows or 1

    @property
    def rank_s(self) -> float:
        """Its place in its lane: the earlier, the nearer to the front."""
        return self.entered_s - self.head_start_s

    @property
    def urgency_s(self) -> float:
        """Its lane's place among lanes: the earlier, the sooner. See priority.py."""
        return min(self.deadline_s, self.entered_s + PATIENCE_S) - self.head_start_s

    def fail(self, error: ServingError) -> None:
        """Answers it by an error, unless it is answered."""
        if not self.reply.done():
            self.reply.set_exception(error)

    def forget(self) -> None:
        """Lets go of tensors and reply: whoever still lists the request must not keep their memory."""
        self.inputs = _NOTHING
        self.reply = ANSWERED
