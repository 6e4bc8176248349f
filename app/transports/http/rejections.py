"""A rejection that applies to later requests with the same head.

Under overload most requests are rejected, and parsing each of them first takes time from those that were accepted. So a
rejection because the answer would be late applies for a moment to later requests with the same head, if the body is
JSON and provably asks for no less: it begins with the same text up to its last string, so it names the same signature,
inputs and parameters, and behind that are at least as many lists and values, so it has as many rows.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from app.codecs.format_registry import JSON
from app.codecs.media_types import media_type
from app.core.errors import WouldBeLate
from app.transports.http.replies import HttpReply, error_reply

#: A rejection applies for at most this long, even if Retry-After is later: calls may be faster than estimated (chosen).
_LONGEST_S = 0.02

#: Longer texts before the values, and bodies, are not compared (chosen).
_MOST_NAMES_BYTES, MOST_BYTES = 512, 8192


class Outline(NamedTuple):
    """The parts of a JSON document that are equal in requests for as much work.

    Attributes:
        names: the text up to the end of its last string.
        lists, values, objects: brackets and commas behind that.
    """

    names: bytes
    lists: int
    values: int
    objects: int

    @classmethod
    def of(cls, body: bytes) -> Outline | None:
        """None if it has no strings or long text before its values, or does not end with its only closing braces."""
        end = body.rfind(b'"') + 1
        if not 0 < end <= _MOST_NAMES_BYTES or len(body) > MOST_BYTES or not body.endswith(b"}"):
            return None
        return cls(body[:end], body.count(b"[", end), body.count(b",", end), body.count(b"}", end))

    def covers(self, body: bytes) -> bool:
        """Does the body ask for as much, or more? Text behind the end of a document would need another brace."""
        end = len(self.names)
        return (
            body.startswith(self.names)
            and body.find(b'"', end) < 0
            and body.endswith(b"}")
            and body.count(b"}", end) == self.objects
            and body.count(b"[", end) >= self.lists
            and body.count(b",", end) >= self.values
        )


class Headers(Protocol):
    """Of a RequestHead."""

    def header(self, name: bytes) -> bytes | None: ...


def in_json(head: Headers) -> bool:
    """Is all of the body JSON?"""
    kind = media_type(head.header(b"content-type") or b"application/json")
    return kind in (*JSON.media_types, *JSON.also_read) and head.header(b"inference-header-content-length") is None


class Rejection(NamedTuple):
    """Applies until `until_s` to a request with the same head and a body that `outline` covers.

    Attributes:
        outline: of the body that was rejected.
        until_s: monotonic seconds.
        asked: model, version and signature, for the event.
        reply: the reply.
        rest: what of the reply follows its status line and the header lines of every reply.
    """

    outline: Outline
    until_s: float
    asked: tuple[str, int, str]
    reply: HttpReply
    rest: bytes

    @classmethod
    def of(cls, error: WouldBeLate, outline: Outline, now: float, asked: tuple[str, int, str]) -> Rejection:
        """The rejection at `now` (monotonic seconds) of a request with such a body."""
        holds_s = min(error.retry_after_s or 0.0, _LONGEST_S)
        reply = error_reply(error)
        return cls(outline, now + holds_s, asked, reply, b"%b\r\n%b" % (reply.head_lines(), reply.body))

    def holds(self, body: bytes, now: float) -> bool:
        """Does it apply to a request with this body?"""
        return now < self.until_s and self.outline.covers(body)
