"""A rejection that applies to later requests with the same head.

Under overload most requests are rejected, and parsing each of them first takes time from those that were accepted. So a
rejection because the answer would be late applies for a moment to later requests with the same head, if the head alone
sets deadline and priority and names the model.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from app.core.errors import WouldBeLate
from app.core.inference import DEFAULT_SIGNATURE
from app.transports.http.replies import HttpReply, error_reply

#: A rejection applies for at most so long, even if Retry-After is later: calls may be faster than estimated (chosen).
_LONGEST_S = 0.02

_SIGNATURE = b"signature_name"
_DEFAULT = re.compile(rb'"%b"\s*:\s*"%b"' % (_SIGNATURE, DEFAULT_SIGNATURE.encode()))


class Rejection(NamedTuple):
    """Applies until `until_s` to a request with the same head and a body of at least `size` bytes.

    Attributes:
        size: length in bytes of the body that was rejected.
        until_s: monotonic seconds.
        asked: model, version and signature, for the event.
        reply: the reply.
        rest: what of the reply follows its status line and the header lines of every reply.
    """

    size: int
    until_s: float
    asked: tuple[str, int, str]
    reply: HttpReply
    rest: bytes

    @classmethod
    def of(cls, error: WouldBeLate, size: int, now: float, asked: tuple[str, int, str]) -> Rejection:
        """The rejection of a request with a body of `size` bytes at `now` (monotonic seconds)."""
        holds_s = min(error.retry_after_s or 0.0, _LONGEST_S)
        reply = error_reply(error)
        return cls(size, now + holds_s, asked, reply, b"%b\r\n%b" % (reply.head_lines(), reply.body))

    def holds(self, body: bytes, now: float) -> bool:
        """Does it apply to a request with this body? Not if the body may set what the head does not."""
        return now < self.until_s and len(body) >= self.size and not _may_override_head(body)


def _may_override_head(body: bytes) -> bool:
    """May the body, in any format, set a priority or a timeout (Open Inference's can), or name another signature?"""
    if b'"priority"' in body or b'"timeout"' in body:
        return True
    # TensorFlow Serving's clients name the default signature. If the words are data, none is named: it is meant, too.
    return _SIGNATURE in body and (body.count(_SIGNATURE) > 1 or _DEFAULT.search(body) is None)
