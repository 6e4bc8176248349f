"""Rejecting by the head alone.

Under overload most requests are rejected, and to read each of them only to find that out takes time from those that
were accepted. So who is rejected because the answer would be late stands for those like it for a moment, as far as the
head says how urgent they are and whom they ask.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from app.core.errors import WouldBeLate
from app.core.inference import DEFAULT_SIGNATURE
from app.transports.http.replies import HttpReply, error_reply

#: No verdict is good for longer, though a retry may be advised later: calls can turn out quicker than was expected.
_LONGEST_S = 0.02

_SIGNATURE = b"signature_name"
_USUAL = re.compile(rb'"%b"\s*:\s*"%b"' % (_SIGNATURE, DEFAULT_SIGNATURE.encode()))


class Rejection(NamedTuple):
    """Until `until_s` (monotonic) a request with the same head, so the same deadline and priority, and a body of at
    least `size` bytes would be rejected, too.

    `asked` is the model, version and signature, `reply` what to say, `rest` what of that follows the status and the
    lines of every reply.
    """

    size: int
    until_s: float
    asked: tuple[str, int, str]
    reply: HttpReply
    rest: bytes

    @classmethod
    def of(cls, error: WouldBeLate, size: int, now: float, asked: tuple[str, int, str]) -> Rejection:
        """What follows from the rejection of one request."""
        holds_s = min(error.retry_after_s or 0.0, _LONGEST_S)
        reply = error_reply(error)
        return cls(size, now + holds_s, asked, reply, b"%b\r\n%b" % (reply.head_lines(), reply.body))

    def holds(self, body: bytes, now: float) -> bool:
        """For a request with this body, unless that may say more than the head."""
        return now < self.until_s and len(body) >= self.size and not _says_more(body)


def _says_more(body: bytes) -> bool:
    """Does it perhaps say how urgent it is, as Open Inference's can, or whom else it asks, in whichever form?"""
    return b'"priority"' in body or b'"timeout"' in body or (_SIGNATURE in body and not _names_the_usual_one(body))


def _names_the_usual_one(body: bytes) -> bool:
    """As TensorFlow Serving's clients do. Where the words are data, nothing names one, and the usual one is meant."""
    return body.count(_SIGNATURE) == 1 and _USUAL.search(body) is not None
