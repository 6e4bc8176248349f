"""NEW."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from app.core.errors import ServingError
from app.core.inference import Array

if TYPE_CHECKING:
    pass
from typing import NamedTuple

from app.core.inference import BatchTiming


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


class Completed:
    """Stands for one that was answered before it could be cancelled."""

    def cancel(self) -> None:
        pass


COMPLETED = Completed()


Outputs = dict[str, Array]


Outcome = Outputs | ServingError


class Answer(NamedTuple):
    """A request's own rows, and where its time went."""

    outputs: Outputs
    timing: BatchTiming
