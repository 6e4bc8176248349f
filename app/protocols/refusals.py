"""Refusing by the head alone.

Under overload most requests are refused, and to read each of them only to find that out takes time from those that
were accepted. So who is refused because the answer would be late stands for those like it for a moment, as far as the
head says how urgent they are.
"""

from __future__ import annotations

from typing import NamedTuple

from app.errors import WouldBeLate
from app.protocols.http import Reply, error_reply

#: No verdict is good for longer, though a retry may be advised later: calls can turn out quicker than was expected.
_LONGEST_S = 0.02


class Refusal(NamedTuple):
    """Until `until_s` (monotonic) a request with the same head, so the same deadline and priority, and a body of at
    least `size` bytes would be refused, too. `asked` is the model, version and signature, `reply` what to say."""

    size: int
    until_s: float
    asked: tuple[str, int, str]
    reply: Reply

    @classmethod
    def of(cls, error: WouldBeLate, size: int, now: float, asked: tuple[str, int, str]) -> Refusal:
        """What follows from the refusal of one request."""
        holds_s = min(error.retry_after_s or 0.0, _LONGEST_S)
        return cls(size, now + holds_s, asked, error_reply(error))

    def holds(self, body: bytes, now: float) -> bool:
        """For a request with this body, unless that may say how urgent it is, as Open Inference's can."""
        long = now < self.until_s and len(body) >= self.size
        return long and b'"priority"' not in body and b'"timeout"' not in body
