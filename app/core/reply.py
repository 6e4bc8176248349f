"""Replies, through which answers reach callers, and answers themselves. A leaf that every part may import."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from app.core.errors import InferenceFailed, ServingError
from app.core.inference import Array, BatchTiming

logger = logging.getLogger(__name__)

Outputs = dict[str, Array]

#: The rows of one request, or its error.
Outcome = Outputs | ServingError


class Answer(NamedTuple):
    """The rows of one request, each output of shape [rows, ...], and its times."""

    outputs: Outputs
    timing: BatchTiming


class Reply(Protocol):
    """The receiver of an answer: an asyncio.Future, or an object that behaves like one. It is set once."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


class CoalescedReply(Reply, Protocol):
    """The reply of several requests that are computed as one."""

    @property
    def rows(self) -> Sequence[int]:
        """The rows of each request."""

    def separate(self) -> Sequence[Reply]:
        """The replies of the single requests. The caller sets either the common reply or all single ones."""


def fail(reply: Reply, error: Exception) -> None:
    """Answers a request with an error, unless it is answered. Never raises."""
    try:
        if not reply.done():
            reply.set_exception(error)
    except Exception:
        fail_broken(reply)


def fail_broken(reply: Reply) -> None:
    """Logs the exception with which a reply could not be set, and tells its caller. Other requests are not affected."""
    logger.exception("A reply could not be set; its caller gets an error, other requests are not affected")
    with suppress(Exception):  # it was logged
        if not reply.done():
            reply.set_exception(InferenceFailed("The answer could not be given to its caller"))


class _Answered:
    """The reply that was set already, and keeps no answer."""

    def done(self) -> bool:
        return True

    def set_result(self, _result: Any, /) -> None:
        raise AssertionError("answered twice")

    set_exception = set_result


#: The reply of a request after its release.
ANSWERED = _Answered()


class Completed:
    """The handle of a request that was answered before it could be cancelled."""

    def cancel(self) -> None:
        """Has no effect."""

    def cancel_one(self, number: int) -> None:
        """Has no effect."""


COMPLETED = Completed()
