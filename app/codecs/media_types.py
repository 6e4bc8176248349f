"""Content-Type and Accept: which form a body has, and which form a reply may have. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def media_type(content_type: bytes) -> str:
    """'application/json' for b'Application/JSON; charset=utf-8'."""
    return content_type.decode("latin-1").partition(";")[0].strip().lower()


def choose(accept: bytes, offered: Sequence[str]) -> str | None:
    """The media type of `offered` that is liked best, the first one of equals; None where none is liked."""
    liked = _qualities(accept.decode("latin-1").lower())
    best = max(offered, key=lambda each: _quality(each, liked))
    return best if _quality(best, liked) > 0 else None


def _quality(media: str, liked: Mapping[str, float]) -> float:
    """By the most special range that covers the type."""
    whole_kind = media.partition("/")[0] + "/*"
    return next((liked[each] for each in (media, whole_kind, "*/*") if each in liked), 0.0)


def _qualities(accept: str) -> dict[str, float]:
    """The wish for each range of types; a lone `*`, as some clients send it, means `*/*`."""
    liked: dict[str, float] = {}
    for part in accept.split(","):
        media, *parameters = (each.strip() for each in part.split(";"))
        quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        liked["*/*" if media == "*" else media] = _number(quality)
    return liked


def _number(quality: str) -> float:
    try:
        return float(quality)
    except ValueError:
        return 0.0
