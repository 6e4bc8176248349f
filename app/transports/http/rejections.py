"""A rejection that applies to later requests with the same head.

Under overload most requests are rejected, and parsing each of them first takes time from those that were accepted. So a
rejection because the answer would be late applies for a moment to later requests with the same head, if the body
provably asks for no less. A JSON body does if two things hold. It begins with the same text up to its last string, so
it names the same signature, inputs and parameters. And at least as many lists and values follow, so it has at least as
many rows. Where names may stand before other numbers than values, and before binary tensors, the whole JSON has to be
the same.

A request with the same head may have more time left: the body of the rejected one may have come slowly.
"""

from __future__ import annotations

from typing import NamedTuple

from app.codecs.format_registry import JSON
from app.codecs.media_types import media_type
from app.core.errors import WouldBeLate
from app.transports.http.replies import HttpReply, error_reply

#: A rejection applies for at most this long, even if Retry-After is later: calls may be faster than estimated (chosen).
_LONGEST_S = 0.02

#: Longer texts before the values, and bodies, are not compared (chosen).
_MOST_NAMES_BYTES, MOST_BYTES = 512, 8192


class JsonOutline(NamedTuple):
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
    def of(cls, body: bytes) -> JsonOutline | None:
        """The outline of a body.

        None if it is long, if it has no string, or a long text up to the last one, or if it does not end with a brace.
        """
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


class BinaryOutline(NamedTuple):
    """The outline of a body of binary tensors: bodies with equal outlines cost the same.

    Attributes:
        text: the JSON.
        length: the bytes of the body.
    """

    text: bytes
    length: int

    @classmethod
    def of(cls, body: bytes, text_length: int) -> BinaryOutline | None:
        """The outline of a body; None if its JSON, of `text_length` bytes, is long or not all there."""
        fits = 0 < text_length <= min(len(body), _MOST_NAMES_BYTES)
        return cls(body[:text_length], len(body)) if fits else None

    def covers(self, body: bytes) -> bool:
        """Does the body ask for as much?"""
        return len(body) == self.length and body.startswith(self.text)


Outline = JsonOutline | BinaryOutline


def json_outline(content_type: bytes | None, body: bytes) -> JsonOutline | None:
    """The outline of a JSON document; None if the body is of another format, or tells too little."""
    kind = media_type(content_type or b"application/json")
    return JsonOutline.of(body) if kind in (*JSON.media_types, *JSON.also_read) else None


class Rejection(NamedTuple):
    """Applies until `until_s` to a request with the same head and a body that `outline` covers.

    Attributes:
        outline: the outline of the body that was rejected.
        until_s: monotonic seconds.
        asked: model, version and signature, for the event.
        reply: the reply.
        rest: the reply behind its status line and the header lines of every reply.
    """

    outline: Outline
    until_s: float
    asked: tuple[str, int, str]
    reply: HttpReply
    rest: bytes

    @classmethod
    def of(
        cls, error: WouldBeLate, outline: Outline, now: float, asked: tuple[str, int, str], spent_s: float = 0.0
    ) -> Rejection | None:
        """The rejection at `now` (monotonic seconds) of a request with such a body; None if it applies to no other.

        `spent_s`: seconds of its time that the rejected request had spent; a new request still has them.
        """
        holds_s = min((error.retry_after_s or 0.0) - spent_s, _LONGEST_S)
        if holds_s <= 0:
            return None
        reply = error_reply(error)
        return cls(outline, now + holds_s, asked, reply, b"%b\r\n%b" % (reply.head_lines(), reply.body))

    def holds(self, body: bytes, now: float) -> bool:
        """Does it apply to a request with this body?"""
        return now < self.until_s and self.outline.covers(body)
