"""The registry of body formats, and the choice of formats by Content-Type and Accept.

A new format is one new file that defines a `BodyFormat`, and one line in `_REGISTRY`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pkgutil import resolve_name
from typing import NamedTuple

from app.codecs.body_format import BodyFormat, ReplyFormat
from app.codecs.errors import NotAcceptable, UnsupportedMediaType
from app.codecs.media_types import choose, media_type

_REGISTRY = (
    "app.codecs.json.predict_documents:FORMAT",
    "app.codecs.npy:FORMAT",
    "app.codecs.npz:FORMAT",
    "app.codecs.msgpack:FORMAT",
    "app.codecs.protobuf.predict_request:FORMAT",
    "app.codecs.image:JPEG",
    "app.codecs.image:PNG",
)

#: Every body format. The first one is JSON; replies prefer formats in this order.
BODY_FORMATS: tuple[BodyFormat, ...] = tuple(resolve_name(each) for each in _REGISTRY)

JSON = BODY_FORMATS[0]


class AgreedFormats(NamedTuple):
    """The formats of one exchange. `reply_type` is the Content-Type of the reply."""

    request: BodyFormat
    reply: ReplyFormat
    reply_type: bytes


@lru_cache(maxsize=1024)
def negotiate(content_type: bytes | None, accept: bytes | None, json_only: bool = False) -> AgreedFormats:
    """The formats for these values of Content-Type and Accept.

    Raises:
        UnsupportedMediaType, NotAcceptable: the text lists the supported types.
    """
    formats = (JSON,) if json_only else BODY_FORMATS
    sent = media_type(content_type) if content_type else ""
    request = _request_format(sent, formats)

    # 1. The types that a reply can have: the request's own type first, or JSON's if a reply cannot have it.
    replies = {name: each.reply for each in formats if each.reply for name in each.media_types}
    own = sent if sent in replies else request.media_types[0]
    preferred = [own, *replies] if own in replies else list(replies)

    # 2. Of these the one that Accept ranks highest; the first of several with equal rank.
    chosen = choose(accept, preferred) if accept else preferred[0]
    if chosen is None:
        shown = (accept or b"").decode("latin-1")[:256]
        raise NotAcceptable(f"Accept is {shown!r}; expected one of the types of this reply: {_list(replies)}")
    return AgreedFormats(request, replies[chosen], chosen.encode())


def _request_format(sent: str, formats: Iterable[BodyFormat]) -> BodyFormat:
    """The format of a body; JSON without a Content-Type."""
    for each in formats:
        if not sent or sent in each.media_types or sent in each.also_read:
            return each
    names = _list(name for each in formats for name in each.media_types)
    raise UnsupportedMediaType(f"Content-Type is {sent[:256]!r}; expected one of {names}")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
