"""Members: the requests that go through a pipeline as one flow, and their replies.

A member keeps its own reply and rows: an error or a cancellation of one member harms no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from app.core.joining.joined_reply import JoinedReply
from app.core.reply import Answer, CoalescedReply, Reply


class HasMembers(Protocol):
    """A flow, as its members call it."""

    def member_left(self) -> None:
        """Called when a member was cancelled."""


class Member:
    """One request of a flow: its reply, and the handle by which its caller cancels it.

    Attributes:
        rows: the number of its rows.
        flow: the flow that it is in; None before that flow begins.
    """

    __slots__ = ("_cancelled", "_reply", "flow", "rows")

    def __init__(self, reply: Reply, rows: int) -> None:
        self.rows = rows
        self.flow: HasMembers | None = None
        self._reply = reply
        self._cancelled = False

    def cancel(self) -> None:
        """Gives up the answer: no further step is computed for it."""
        if not self._cancelled:
            self._cancelled = True
            if self.flow is not None:
                self.flow.member_left()

    def done(self) -> bool:
        """Whether it was answered or cancelled."""
        return self._cancelled or self._reply.done()

    def set_result(self, answer: Answer, /) -> None:
        self._reply.set_result(answer)

    def set_exception(self, error: Exception, /) -> None:
        self._reply.set_exception(error)

    def __repr__(self) -> str:
        return f"<Member of {self.rows} rows, {'done' if self.done() else 'waiting'}>"


class JoinedMembers(JoinedReply[Any]):
    """The JoinedReply of a flow's members, which are cancelled through the flow.

    Args:
        whole: takes the answer to all of them at once, if they have come as one.
    """

    __slots__ = ("_whole",)

    def __init__(self, members: Sequence[Member], whole: CoalescedReply | None = None) -> None:
        super().__init__(members, [member.rows for member in members])
        self._whole = whole

    def separate(self) -> Sequence[Reply]:
        return self.parts

    def answer(self, answer: Answer) -> None:
        if self._whole is None:
            super().answer(answer)
        else:
            self._whole.set_result(answer)


class MembersHandle:
    """Cancels single members of a joint submission."""

    __slots__ = ("_members",)

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members

    def cancel(self) -> None:
        for member in self._members:
            member.cancel()

    def cancel_one(self, number: int) -> None:
        self._members[number].cancel()
