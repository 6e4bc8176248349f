"""The requests that go through a pipeline as one flow, and their replies.

Each keeps its own reply and its own rows: what becomes of one of them harms no other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from typing import Protocol

from app.core.errors import InferenceFailed
from app.core.reply import Answer, CoalescedReply, Reply

logger = logging.getLogger(__name__)


class HasMembers(Protocol):
    """A flow."""

    def member_left(self) -> None:
        """One of its members waits no more."""


class Member:
    """One request of a flow: its reply, and for its caller the way to cancel it.

    Attributes:
        rows: how many it has.
        flow: that it is in; None before that begins.
    """

    __slots__ = ("_cancelled", "_reply", "flow", "rows")

    def __init__(self, reply: Reply, rows: int) -> None:
        self.rows = rows
        self.flow: HasMembers | None = None
        self._reply = reply
        self._cancelled = False

    def cancel(self) -> None:
        """Gives up the answer: what is not being computed yet never will be for it."""
        if not self._cancelled:
            self._cancelled = True
            if self.flow is not None:
                self.flow.member_left()

    def done(self) -> bool:
        """Whether nobody waits for its answer: it was answered or cancelled."""
        return self._cancelled or self._reply.done()

    def set_result(self, answer: Answer, /) -> None:
        self._reply.set_result(answer)

    def set_exception(self, error: Exception, /) -> None:
        self._reply.set_exception(error)

    def __repr__(self) -> str:
        return f"<Member of {self.rows} rows, {'done' if self.done() else 'waiting'}>"


class Together:
    """The CoalescedReply of a flow's members: each gets its own rows.

    Args:
        whole: takes the answer to all of them at once, if they have come as one.
    """

    __slots__ = ("_members", "_whole")

    def __init__(self, members: Sequence[Member], whole: CoalescedReply | None = None) -> None:
        self._members = members
        self._whole = whole

    @property
    def rows(self) -> Sequence[int]:
        return [member.rows for member in self._members]

    def done(self) -> bool:
        for member in self._members:  # noqa: SIM110 - quicker
            if not member.done():
                return False
        return True

    def apart(self) -> Sequence[Reply]:
        return self._members

    def set_result(self, answer: Answer, /) -> None:
        if self._whole is not None:
            self._whole.set_result(answer)
            return
        outputs, timing = answer
        end = 0
        for member in self._members:
            start, end = end, end + member.rows
            if not member.done():
                own = Answer({name: array[start:end] for name, array in outputs.items()}, timing)
                try:
                    member.set_result(own)
                except Exception:
                    _report_broken_reply(member)

    def set_exception(self, error: Exception, /) -> None:
        for member in self._members:
            if not member.done():
                try:
                    member.set_exception(copy(error))
                except Exception:
                    _report_broken_reply(member)


def _report_broken_reply(member: Member) -> None:
    """It harms no other member."""
    logger.exception("A reply could not be set; its caller gets an error, other requests are not affected")
    with suppress(Exception):  # it was logged
        if not member.done():
            member.set_exception(InferenceFailed("The answer could not be given to its caller"))


class MembersHandle:
    """Cancels members of what was submitted as one."""

    __slots__ = ("_members",)

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members

    def cancel(self) -> None:
        for member in self._members:
            member.cancel()

    def cancel_one(self, number: int) -> None:
        self._members[number].cancel()
