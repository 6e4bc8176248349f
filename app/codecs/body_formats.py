"""Every form that predict bodies and replies may have, by content type."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from app.codecs import image as body_image
from app.codecs import msgpack as body_msgpack
from app.codecs import npy as body_npy
from app.codecs import npz as body_npz
from app.codecs.body_format import BodyForm, ReplyForm
from app.codecs.errors import NotAcceptable, UnsupportedMediaType
from app.codecs.json import body as body_json
from app.codecs.media_types import choose, media_type
from app.codecs.protobuf import body as body_protobuf

JSON = body_json.FORM

FORMS = (
    JSON,
    body_npy.FORM,
    body_npz.FORM,
    body_msgpack.FORM,
    body_protobuf.FORM,
    *body_image.FORMS,
)


class Forms(NamedTuple):
    """What an exchange has agreed on. `reply_type` is the content type of the reply."""

    request: BodyForm
    reply: ReplyForm
    reply_type: bytes


@lru_cache(maxsize=1024)
def agree(content_type: bytes | None, accept: bytes | None, json_only: bool = False) -> Forms:
    """The forms for these two headers.

    Without an Accept the reply has the request's form, or is JSON where no reply can have it; of types that
    Accept likes equally, that one is preferred too.

    Raises:
        UnsupportedMediaType, NotAcceptable: naming what there is.
    """
    forms = (JSON,) if json_only else FORMS
    kind = media_type(content_type) if content_type else ""
    request = _request_form(kind, forms)
    replies = {name: form.reply for form in forms if form.reply for name in form.media_types}
    own = kind if kind in replies else request.media_types[0]
    preferred = [own, *replies] if own in replies else list(replies)
    chosen = choose(accept, preferred) if accept else preferred[0]
    if chosen is None:
        shown = (accept or b"").decode("latin-1")[:256]
        raise NotAcceptable(f"Accept {shown!r} allows none of the forms of this reply: {', '.join(replies)}")
    return Forms(request, replies[chosen], chosen.encode())


def _request_form(kind: str, forms: Iterable[BodyForm]) -> BodyForm:
    """No type at all means JSON."""
    for form in forms:
        if not kind or kind in form.media_types or kind in form.also_read:
            return form
    accepted = ", ".join(name for form in forms for name in form.media_types)
    raise UnsupportedMediaType(f"Content-Type {kind[:256]!r} is not read here; send one of {accepted}")
